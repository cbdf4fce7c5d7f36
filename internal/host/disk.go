package host

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// syncMost is how long a disk is waited for: one that has failed may never answer.
const syncMost = 10 * time.Second

// syncTime is how long it takes until 4 KiB are on the disk below a directory, or below the next
// directory above that there is: the median of a few times, or syncMost if it takes longer. 0 when
// that is not known. The file has no name at any time.
func (h *Host) syncTime(dir string) time.Duration {
	return atMost(syncMost, func() time.Duration {
		at := h.path(dir)
		for at != "/" && !isDir(at) {
			at = filepath.Dir(at)
		}
		return syncTime(at)
	})
}

// atMost is what measure returns, or most when that takes longer. The kernel ends no write that
// hangs, so that measure may go on, and even keep the process from ending once all is told.
func atMost(most time.Duration, measure func() time.Duration) time.Duration {
	took := make(chan time.Duration, 1)
	go func() { took <- measure() }()
	select {
	case is := <-took:
		return is
	case <-time.After(most):
		return most
	}
}

func syncTime(dir string) time.Duration {
	const times, enough = 7, syncMost / 2
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return 0
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	var took []time.Duration
	block := make([]byte, 4096)
	for began := time.Now(); len(took) < times && time.Since(began) < enough; {
		start := time.Now()
		if _, err := f.Write(block); err != nil || f.Sync() != nil {
			return 0
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
