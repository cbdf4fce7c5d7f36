package host

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// syncTime is how long it takes until 4 KiB are on the disk below a directory, or below the next
// directory above that there is: the median of a few times. 0 when that is not known. The file has
// no name at any time.
func (h *Host) syncTime(dir string) time.Duration {
	const times, atMost = 7, 5 * time.Second
	at := h.path(dir)
	for at != "/" && !isDir(at) {
		at = filepath.Dir(at)
	}
	fd, err := unix.Open(at, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return 0
	}
	f := os.NewFile(uintptr(fd), at)
	defer f.Close()
	var took []time.Duration
	block := make([]byte, 4096)
	for began := time.Now(); len(took) < times && time.Since(began) < atMost; {
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
