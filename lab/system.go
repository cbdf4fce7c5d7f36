package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/lab/component"
)

// systemPackages are in every machine: the packages of an Ubuntu server that matter here.
const systemPackages = "systemd,systemd-sysv,dbus,iproute2,iptables,nftables,ca-certificates," +
	"kmod,procps,conntrack,socat,ethtool,mount,udev,curl,zstd"

// baseSystem creates the root directory from which machines are copied, once for each set of
// packages.
func (l *Lab) baseSystem(ctx context.Context, packages []string) (string, error) {
	include := strings.Join(append([]string{systemPackages}, packages...), ",")
	name := strings.Join(append([]string{"system-bookworm-4"}, packages...), "-")
	dir := filepath.Join(l.Cache, name)
	install := func(work string) error {
		l.Say("installing a base system for machines %s", strings.Join(packages, " "))
		_, err := run(ctx, "mmdebstrap", "--quiet", "--variant=minbase", "--include="+include,
			"bookworm", work)
		return errors.Join(err, maskGenerators(work))
	}
	return dir, component.Once(ctx, dir, func() {}, install)
}

// maskGenerators masks systemd's generators that have nothing to do in the lab's machines: every
// change of a unit runs all of them, which takes longer than the change.
func maskGenerators(root string) error {
	masks := filepath.Join(root, "etc/systemd/system-generators")
	if err := os.MkdirAll(masks, 0o755); err != nil {
		return err
	}
	found, err := filepath.Glob(filepath.Join(root, "usr/lib/systemd/system-generators/*"))
	errs := []error{err}
	for _, path := range found {
		if name := filepath.Base(path); name != "systemd-fstab-generator" {
			errs = append(errs, os.Symlink("/dev/null", filepath.Join(masks, name)))
		}
	}
	return errors.Join(errs...)
}

// sharedTrees are large directories whose files are never modified in place: dpkg and Python only
// replace them.
var sharedTrees = []string{"usr/share", "usr/lib/python3", "usr/lib/*-linux-gnu"}

// copySystem creates a machine's root directory. It hard-links the files of some trees to the base
// system if both are on one file system: with az they take 1.6 GB.
func copySystem(ctx context.Context, base, root string) error {
	if err := os.MkdirAll(filepath.Dir(root), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	var own, shared []string
	for _, dir := range []string{".", "usr", "usr/lib"} {
		entries, err := os.ReadDir(filepath.Join(base, dir))
		if err != nil {
			return err
		}
		for _, e := range entries {
			switch name := filepath.Join(dir, e.Name()); {
			case isShared(name):
				shared = append(shared, name)
			case name != "usr" && name != "usr/lib":
				own = append(own, name)
			}
		}
	}
	how := "--link"
	if os.Link(filepath.Join(base, "etc/debian_version"), root+".link") != nil {
		how = "--reflink=auto"
	}
	_ = os.Remove(root + ".link")
	copying := func(how string, names []string) error {
		args := []string{"--chdir=" + base, "cp", "-a", "--parents", how}
		_, err := run(ctx, "env", slices.Concat(args, names, []string{root})...)
		return err
	}
	return errors.Join(copying("--reflink=auto", own), copying(how, shared))
}

func isShared(name string) bool {
	return slices.ContainsFunc(sharedTrees, func(pattern string) bool {
		match, _ := filepath.Match(pattern, name)
		return match
	})
}
