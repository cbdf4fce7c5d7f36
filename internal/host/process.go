package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/wait"
)

// findProcesses tells whether programs of dir are running. Which ones changes all the time, so the
// answer is the directory.
func (linux) findProcesses(_ context.Context, dir string) ([]string, error) {
	pids, err := executables(dir)
	if err != nil || len(pids) == 0 {
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
			_ = unix.Kill(pid, signal) // one that has just ended is what we want
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

// executables lists the processes whose program lies below dir.
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
