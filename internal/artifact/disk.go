package artifact

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// writeback is how much may be written before the kernel is asked to begin moving it to the disk,
// so that the fsync at the end finds little left to do.
const writeback = 8 << 20

// diskWriter writes a file whose write errors tell that they are this machine's own.
type diskWriter struct {
	f       *os.File
	pending int64
}

func (w *diskWriter) Write(p []byte) (int, error) {
	n, err := w.f.Write(p)
	if err != nil {
		return n, diskError(err)
	}
	if w.pending += int64(n); w.pending >= writeback {
		w.pending = 0
		// Only a hint: file systems without it lose nothing but time.
		_ = unix.SyncFileRange(int(w.f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
	}
	return n, nil
}

// isLocal reports whether err is a fault of this machine's own disk.
func isLocal(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Local()
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
