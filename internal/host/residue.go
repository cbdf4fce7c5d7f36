package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// clear takes away what has come of a residue since it was remembered.
func (h *Host) clear(ctx context.Context, c state.Change, to state.Residue) error {
	if !c.Undo {
		return nil
	}
	found, err := h.Kernel.Find(ctx, to)
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(found, func(s string) bool { return slices.Contains(to.Found, s) })
	if len(found) == 0 {
		return nil
	}
	if err := h.touch("remove %s %s", to.Kind, to.Match); err != nil {
		return err
	}
	if to.Kind == state.Cgroups {
		if err := h.Systemd.Stop(ctx, to.Match); err != nil {
			return fmt.Errorf("cannot stop %s: %w", to.Match, err)
		}
	}
	if err := h.Kernel.Clear(ctx, to, found); err != nil {
		return fmt.Errorf("cannot remove %s %s: %w", to.Kind, strings.Join(found, ", "), err)
	}
	return nil
}

// Find implements Kernel.
func (linux) Find(ctx context.Context, r state.Residue) ([]string, error) {
	var found []string
	var err error
	switch r.Kind {
	case state.Interfaces:
		found, err = findInterface(r.Match)
	case state.Chains:
		found, err = findChains(ctx, r.Match)
	case state.Cgroups:
		found, err = findCgroups(r.Match)
	case state.Processes:
		found, err = findProcesses(r.Match)
	case state.Mounts:
		found, err = findMounts(r.Match)
	default:
		err = fmt.Errorf("internal error: residue of unknown kind %s", r.Kind)
	}
	slices.Sort(found)
	return slices.Compact(found), err
}

// Clear implements Kernel.
func (linux) Clear(ctx context.Context, r state.Residue, found []string) error {
	switch r.Kind {
	case state.Interfaces:
		return clearInterfaces(found)
	case state.Chains:
		return clearChains(ctx, r.Match, found)
	case state.Cgroups:
		return clearCgroups(found)
	case state.Processes:
		return clearProcesses(ctx, r.Match)
	case state.Mounts:
		return clearMounts(found)
	}
	return nil
}

func findInterface(name string) ([]string, error) {
	_, err := netlink.LinkByName(name)
	if _, missing := errors.AsType[netlink.LinkNotFoundError](err); missing {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot look for interface %s: %w", name, err)
	}
	return []string{name}, nil
}

func clearInterfaces(names []string) error {
	var errs []error
	for _, name := range names {
		link, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkDel(link)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// families are the two rule sets of iptables; a machine may have neither tool.
var families = [...]string{"iptables", "ip6tables"}

// findChains lists chains whose name has the prefix, as "iptables nat CNI-1234".
func findChains(ctx context.Context, prefix string) ([]string, error) {
	var found []string
	for _, family := range families {
		rules, err := saveRules(ctx, family)
		if err != nil {
			return nil, err
		}
		table := ""
		for line := range strings.Lines(rules) {
			line = strings.TrimSpace(line)
			if name, ok := strings.CutPrefix(line, "*"); ok {
				table = name
			}
			name, _, _ := strings.Cut(strings.TrimPrefix(line, ":"), " ")
			if strings.HasPrefix(line, ":") && strings.HasPrefix(name, prefix) {
				found = append(found, family+" "+table+" "+name)
			}
		}
	}
	return found, nil
}

// saveRules returns the rules as iptables-save prints them; none where the tool is missing.
func saveRules(ctx context.Context, family string) (string, error) {
	tool, err := exec.LookPath(family + "-save")
	if err != nil {
		return "", nil
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, tool)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil && strings.Contains(family, "6") {
		return "", nil // a kernel without IPv6
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the rules of %s: %w: %s", family, err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// clearChains removes chains, and before them the rules elsewhere that jump to them, in one transaction for each family.
func clearChains(ctx context.Context, prefix string, found []string) error {
	var errs []error
	for _, family := range families {
		gone := make(map[string]bool)
		for _, f := range found {
			if rest, ok := strings.CutPrefix(f, family+" "); ok {
				gone[rest] = true
			}
		}
		if len(gone) == 0 {
			continue
		}
		rules, err := saveRules(ctx, family)
		if err == nil {
			err = restoreRules(ctx, family, removal(rules, gone))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removal is the input of iptables-restore --noflush that removes the chains in gone ("table chain") and what jumps to them.
func removal(rules string, gone map[string]bool) string {
	var b strings.Builder
	var jumps, chains []string
	table := ""
	flush := func() {
		if len(chains) == 0 {
			return
		}
		b.WriteString("*" + table + "\n")
		for _, c := range chains {
			b.WriteString("-F " + c + "\n")
		}
		for _, j := range jumps {
			b.WriteString(j + "\n")
		}
		for _, c := range chains {
			b.WriteString("-X " + c + "\n")
		}
		b.WriteString("COMMIT\n")
	}
	for line := range strings.Lines(rules) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			table, jumps, chains = line[1:], nil, nil
		case line == "COMMIT":
			flush()
		case strings.HasPrefix(line, ":"):
			name, _, _ := strings.Cut(line[1:], " ")
			if gone[table+" "+name] {
				chains = append(chains, name)
			}
		case strings.HasPrefix(line, "-A "):
			chain, rest, _ := strings.Cut(line[3:], " ")
			if !gone[table+" "+chain] && gone[table+" "+target(rest)] {
				jumps = append(jumps, "-D "+line[3:])
			}
		}
	}
	return b.String()
}

// target is the chain that a rule jumps to. It comes last: a comment before it may hold anything.
func target(rule string) string {
	i := strings.LastIndex(" "+rule, " -j ")
	if i < 0 {
		return ""
	}
	name, _, _ := strings.Cut(rule[i+len("-j "):], " ")
	return name
}

func restoreRules(ctx context.Context, family, input string) error {
	if input == "" {
		return nil
	}
	cmd := exec.CommandContext(ctx, family+"-restore", "--noflush", "--wait")
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s-restore: %w: %s", family, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// findCgroups lists the directories of a slice at the root of each hierarchy.
func findCgroups(slice string) ([]string, error) {
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/" + slice, "/sys/fs/cgroup/*/" + slice} {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		found = append(found, matches...)
	}
	// Controllers that are mounted together show under two names, one a link to the other.
	return slices.DeleteFunc(found, func(p string) bool {
		real, err := filepath.EvalSymlinks(p)
		return err != nil || real != p
	}), nil
}

// clearCgroups removes a slice's directories from the leaves up. What still runs in one is killed: those are containers, and
// their slice is ours.
func clearCgroups(dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		var all []string
		err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				all = append(all, p)
			}
			return nil
		})
		errs = append(errs, err)
		for _, sub := range slices.Backward(all) {
			killCgroup(sub)
			if err := removeCgroup(sub); err != nil {
				errs = append(errs, err)
				break
			}
		}
	}
	return errors.Join(errs...)
}

func killCgroup(dir string) {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return
	}
	for _, field := range strings.Fields(string(data)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
			_ = unix.Kill(pid, unix.SIGKILL) // one that has just ended is what we want
		}
	}
}

// removeCgroup removes an empty control group; the kernel needs a moment after its last process has gone.
func removeCgroup(dir string) error {
	var err error
	for range 50 {
		err = unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("cannot remove %s: %w", dir, err)
}

// findProcesses tells whether programs of dir are running. Which ones changes all the time, so the answer is the directory.
func findProcesses(dir string) ([]string, error) {
	pids, err := executables(dir)
	if err != nil || len(pids) == 0 {
		return nil, err
	}
	return []string{dir}, nil
}

// clearProcesses ends the programs of dir: asked first, killed after two seconds.
func clearProcesses(ctx context.Context, dir string) error {
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		pids, err := executables(dir)
		if err != nil {
			return err
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, signal) // one that has just ended is what we want
		}
		if gone(ctx, dir, 2*time.Second) {
			return nil
		}
	}
	return errors.New("they do not end")
}

func gone(ctx context.Context, dir string, within time.Duration) bool {
	deadline := time.Now().Add(within)
	for time.Now().Before(deadline) && ctx.Err() == nil {
		if pids, err := executables(dir); err == nil && len(pids) == 0 {
			return true
		}
		time.Sleep(20 * time.Millisecond)
	}
	return false
}

func findMounts(prefix string) ([]string, error) {
	list, err := mounts()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, m := range list {
		if strings.HasPrefix(m.Point, prefix) {
			found = append(found, m.Point)
		}
	}
	matches, err := filepath.Glob(prefix + "*")
	return append(found, matches...), err
}

// clearMounts unmounts what is mounted at the given places and removes the empty files that they were mounted on.
func clearMounts(points []string) error {
	var errs []error
	for _, point := range slices.Backward(slices.Sorted(slices.Values(points))) {
		err := unix.Unmount(point, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("cannot unmount %s: %w", point, err))
			continue
		}
		if info, err := os.Lstat(point); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
			errs = append(errs, os.Remove(point))
		}
	}
	return errors.Join(errs...)
}
