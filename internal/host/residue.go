package host

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

// observeResidue observes "kind:match". It finds control groups of systemd by their unit too: a
// slice may stay loaded after its control group is gone.
func (h *Host) observeResidue(ctx context.Context, name string) (state.Resource, error) {
	kind, match, _ := strings.Cut(name, ":")
	r := state.Residue{Kind: state.ResidueKind(kind), Match: match}
	if r.Kind == state.Files || r.Kind == state.Trees {
		return h.observeFiles(r)
	}
	if r.Kind == state.Settings {
		is, err := h.observeSysctl(match)
		if s, ok := is.(state.Sysctl); ok && s.Value != "" && s.Value != "0" {
			r.Found = []string{s.Value}
		}
		return r, err
	}
	var err error
	if r.Found, err = h.Kernel.Find(ctx, r); err != nil {
		return nil, err
	}
	if r.Kind == state.Cgroups {
		units, err := h.Systemd.Units(ctx, match)
		if err != nil {
			return nil, fmt.Errorf("cannot observe %s: %w", match, err)
		}
		r.Found = append(r.Found, units...)
		slices.Sort(r.Found)
	}
	return r, nil
}

func (h *Host) setResidue(ctx context.Context, c state.Change, to state.Residue) error {
	if !c.Undo {
		return nil
	}
	is, err := h.observeResidue(ctx, string(to.Kind)+":"+to.Match)
	if err != nil {
		return err
	}
	found := slices.DeleteFunc(is.(state.Residue).Found, func(s string) bool {
		return slices.Contains(to.Found, s)
	})
	if to.Kind == state.Cgroups && len(found) > 0 {
		if err := h.jobAfterReset(ctx, Stop, to.Match); err != nil {
			return err
		}
		found = slices.DeleteFunc(found, func(s string) bool { return s == to.Match })
	}
	switch {
	case len(found) == 0:
		return nil
	case to.Kind == state.Settings:
		return h.setSysctl(state.Sysctl{Name: to.Match, Value: "0"})
	case to.Kind == state.Trees:
		return h.purge(to.Match, nil)
	case to.Kind == state.Files:
		return h.remove(to.Match, 0)
	}
	return h.change(fmt.Sprintf("remove %s %s", to.Kind, strings.Join(found, ", ")), func() error {
		return h.Kernel.Clear(ctx, to, found)
	})
}

func (h *Host) observeFiles(r state.Residue) (state.Resource, error) {
	info, err := os.Lstat(h.path(r.Match))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot observe %s: %w", r.Match, err)
	}
	if err == nil && (info.Mode().IsRegular() && r.Kind == state.Files ||
		info.IsDir() && r.Kind == state.Trees) {
		r.Found = []string{r.Match}
	}
	return r, nil
}

var left = map[state.ResidueKind]struct {
	find  func(l linux, ctx context.Context, match string) ([]string, error)
	clear func(l linux, ctx context.Context, match string, found []string) error
}{
	state.Interfaces: {linux.findInterface, linux.clearInterfaces},
	state.Chains:     {linux.findChains, linux.clearChains},
	state.Tables:     {linux.findTables, linux.clearTables},
	state.Cgroups:    {linux.findCgroups, linux.clearCgroups},
	state.Processes:  {linux.findProcesses, linux.clearProcesses},
	state.Mounts:     {linux.findMounts, linux.clearMounts},
}

func (l linux) Find(ctx context.Context, r state.Residue) ([]string, error) {
	kind, known := left[r.Kind]
	if !known {
		return nil, fmt.Errorf("internal error: residue of unknown kind %s", r.Kind)
	}
	found, err := kind.find(l, ctx, r.Match)
	slices.Sort(found)
	return slices.Compact(found), err
}

// Clear removes the residue in found, which Find has returned or the ledger holds.
func (l linux) Clear(ctx context.Context, r state.Residue, found []string) error {
	kind, known := left[r.Kind]
	if !known {
		return fmt.Errorf("internal error: residue of unknown kind %s", r.Kind)
	}
	return kind.clear(l, ctx, r.Match, found)
}

func (linux) findInterface(_ context.Context, name string) ([]string, error) {
	list, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("cannot find interface %s: %w", name, err)
	}
	if slices.ContainsFunc(list, func(i net.Interface) bool { return i.Name == name }) {
		return []string{name}, nil
	}
	return nil, nil
}

func (linux) clearInterfaces(_ context.Context, _ string, names []string) error {
	list, err := net.Interfaces()
	errs := []error{err}
	for _, i := range list {
		if !slices.Contains(names, i.Name) {
			continue
		}
		link := make([]byte, unix.SizeofIfInfomsg)
		binary.NativeEndian.PutUint32(link[4:], uint32(i.Index)) // struct ifinfomsg, rtnetlink(7)
		_, err := askKernel(unix.NETLINK_ROUTE, unix.RTM_DELLINK, netlink.Acknowledge, link)
		errs = append(errs, except(err, unix.ENODEV))
	}
	return errors.Join(errs...)
}

// findProcesses reports whether programs of dir are running. It returns only the directory, since
// the processes change all the time.
func (linux) findProcesses(_ context.Context, dir string) ([]string, error) {
	if pids, err := executables(dir); err != nil || len(pids) == 0 {
		return nil, err
	}
	return []string{dir}, nil
}

// clearProcesses ends the programs of dir: asked first, killed after two seconds.
func (linux) clearProcesses(ctx context.Context, dir string, _ []string) error {
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		pids, err := executables(dir)
		if err != nil {
			return err
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, signal) // the process may have just ended
		}
		for range 100 {
			if pids, err := executables(dir); err == nil && len(pids) == 0 {
				return nil
			}
			if !wait.Sleep(ctx, 20*time.Millisecond) {
				return ctx.Err()
			}
		}
	}
	return errors.New("they do not end")
}

func executables(dir string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe"))
		if err == nil && within(exe, dir) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func (linux) findCgroups(_ context.Context, slice string) ([]string, error) {
	unified, err := filepath.Glob("/sys/fs/cgroup/" + slice)
	controllers, err2 := filepath.Glob("/sys/fs/cgroup/*/" + slice)
	// Controllers that are mounted together show under two names, one a link to the other.
	return slices.DeleteFunc(append(unified, controllers...), func(p string) bool {
		real, err := filepath.EvalSymlinks(p)
		return err != nil || real != p
	}), errors.Join(err, err2)
}

// clearCgroups removes a slice's directories from the leaves up, with the processes in them: they
// are containers', and the slice is ours.
func (linux) clearCgroups(_ context.Context, _ string, dirs []string) error {
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
			if err := removeCgroup(sub); err != nil {
				errs = append(errs, err)
				break
			}
		}
	}
	return errors.Join(errs...)
}

// removeCgroup kills the processes of a control group and removes it, which takes a moment.
func removeCgroup(dir string) (err error) {
	for range 50 {
		data, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs")) // the group may have just gone
		for field := range strings.FieldsSeq(string(data)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
				_ = unix.Kill(pid, unix.SIGKILL) // the process may have just ended
			}
		}
		if err = except(unix.Rmdir(dir), unix.ENOENT); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("cannot remove %s: %w", dir, err)
}
