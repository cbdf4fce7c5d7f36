package host

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/wait"
)

// Where package managers keep each other out (dpkg's frontend locking protocol): who holds the
// first lock runs dpkg, which takes the second one itself.
const (
	frontendLock = "/var/lib/dpkg/lock-frontend"
	databaseLock = "/var/lib/dpkg/lock"
)

// lockPackages waits until nobody else installs or removes packages, and keeps them out until
// release.
func (h *Host) lockPackages(ctx context.Context) (release func(), err error) {
	bounded, cancel := context.WithTimeout(ctx, cmp.Or(h.PackageWait, 5*time.Minute))
	defer cancel()
	frontend, err := h.lockFile(bounded, frontendLock)
	if err != nil {
		return nil, err
	}
	database, err := h.lockFile(bounded, databaseLock)
	if err != nil {
		frontend.Close()
		return nil, err
	}
	database.Close() // dpkg's own
	return func() { frontend.Close() }, nil
}

// lockFile takes a lock, which closing the file gives back.
func (h *Host) lockFile(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(h.path(path), os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the packages of this machine: %w", err)
	}
	for said := false; ; said = true {
		lock := unix.Flock_t{Type: unix.F_WRLCK}
		err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &lock)
		if err == nil {
			return f, nil
		}
		if except(err, unix.EAGAIN, unix.EACCES) != nil {
			f.Close()
			return nil, fmt.Errorf("cannot lock %s: %w", path, err)
		}
		holder := h.lockHolder(f)
		if !said && h.Log != nil {
			h.Log.Info("waiting for another package manager", "holder", holder)
		}
		h.beat()
		if !wait.Sleep(ctx, time.Second) {
			f.Close()
			return nil, fmt.Errorf("another package manager is at work (%s); run this again when "+
				"it has ended: %w", holder, ctx.Err())
		}
	}
}

// lockHolder says which process holds a lock.
func (h *Host) lockHolder(f *os.File) string {
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil || lock.Pid <= 0 {
		return "unknown"
	}
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", lock.Pid)) // it may have ended
	return strings.TrimSpace(fmt.Sprintf("process %d %s", lock.Pid, name))
}
