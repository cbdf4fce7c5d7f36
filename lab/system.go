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

// pythonTree has the modules of az and other programs, which no machine modifies.
const pythonTree = "usr/lib/python3"

// copySystem creates a machine's root directory. It hard-links the files below /usr, except for
// units and /usr/local, to the base system if both are on one file system: programs such as dpkg
// only replace them. pythonTree, which with az has 56,000 files, is not copied: boundTree names it.
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
			case name == "usr" || name == "usr/lib" || name == pythonTree:
			case dir == "." || name == "usr/local" || name == "usr/lib/systemd":
				own = append(own, name)
			default:
				shared = append(shared, name)
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
	return errors.Join(copying("--reflink=auto", own), copying(how, shared), bindTree(base, root))
}

// boundTree is the link to a base system's pythonTree, which Launch binds into the machine.
func boundTree(root string) string { return filepath.Join(filepath.Dir(root), "python3") }

func bindTree(base, root string) error {
	tree := filepath.Join(base, pythonTree)
	if _, err := os.Stat(tree); err != nil {
		return nil // a system without Python
	}
	return errors.Join(os.Symlink(tree, boundTree(root)),
		os.Mkdir(filepath.Join(root, pythonTree), 0o755))
}
