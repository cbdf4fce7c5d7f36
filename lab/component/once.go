package component

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Once creates the directory dir unless it exists. fill writes to a work directory beside it, which
// is synced and renamed at the end, so dir is complete or absent; the next call removes the remains
// of a killed process. A second caller, in this process or another, waits for the first until ctx
// ends; waiting is called before it waits.
func Once(ctx context.Context, dir string, waiting func(), fill func(work string) error) error {
	if present(dir) {
		return nil
	}
	parent, name := filepath.Split(filepath.Clean(dir))
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fmt.Errorf("cannot make the cache: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(parent, "."+name+".lock"), waiting)
	if err != nil {
		return fmt.Errorf("cannot wait for %s: %w", name, err)
	}
	defer unlock()
	if present(dir) {
		return nil
	}
	work := filepath.Join(parent, ".work-"+name)
	if err := os.RemoveAll(work); err != nil {
		return fmt.Errorf("cannot clear %s: %w", work, err)
	}
	defer os.RemoveAll(work)
	if err := os.Mkdir(work, 0o755); err != nil {
		return fmt.Errorf("cannot make %s: %w", work, err)
	}
	if err := fill(work); err != nil {
		return err
	}
	if err := syncFileSystem(work); err != nil {
		return err
	}
	if err := os.Rename(work, dir); err != nil {
		return fmt.Errorf("cannot put %s in its place: %w", name, err)
	}
	return syncFileSystem(parent)
}

func present(dir string) bool {
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir()
}

// lock locks a file, or waits until it is free. The kernel releases the lock when its holder dies.
// The file is not removed: two holders could then lock two files of the same name.
func lock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for first := true; ; first = false {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("cannot lock %s: %w", path, err)
		}
		if first {
			waiting()
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// syncFileSystem syncs the file system of dir, in one call instead of one per file.
func syncFileSystem(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("cannot sync %s: %w", dir, err)
	}
	return nil
}
