package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// findCgroups lists the directories of a slice at the root of each hierarchy.
func (linux) findCgroups(_ context.Context, slice string) ([]string, error) {
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

// clearCgroups removes a slice's directories from the leaves up. What still runs in one is killed:
// those are containers, and their slice is ours.
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

// removeCgroup removes an empty control group; the kernel needs a moment after its last process has
// gone.
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
