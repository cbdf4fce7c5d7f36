package artifact

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/remove"
)

// Touch is told what is about to be done to the store, before each file or directory that is made,
// renamed, cut short or removed, and done is called when that is done. An error keeps it from being
// done. It may never return: a test of what a killed process leaves behind stops it there, and waits
// for the others to be done.
type Touch func(what string) (done func(), err error)

// before announces one change; its error is a fault of this machine.
func (t Touch) before(format string, args ...any) (done func(), err error) {
	if t == nil {
		return func() {}, nil
	}
	done, err = t(fmt.Sprintf(format, args...))
	return done, diskError(err)
}

// do announces one change and makes it; what fails is a fault of this machine.
func (t Touch) do(change func() error, format string, args ...any) error {
	done, err := t.before(format, args...)
	if err != nil {
		return err
	}
	defer done()
	return diskError(change())
}

// removeTree removes store/name and everything below it.
func removeTree(store, name string, touch Touch) error {
	dir, err := os.Open(store)
	if err != nil {
		return fmt.Errorf("cannot open the artifact store: %w", err)
	}
	defer dir.Close()
	return remove.Tree(dir, name, func(what string) (func(), error) {
		return touch.before("%s", what)
	})
}

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
	if w.pending += int64(n); err == nil && w.pending >= writeback {
		w.pending = 0
		// Only a hint: file systems without it lose nothing but time.
		_ = unix.SyncFileRange(int(w.f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
	}
	return n, diskError(err)
}

// chunk is the size of reads from the network and of writes to the disk.
const chunk = 256 << 10

// copyAll copies in chunks, without the shortcuts of io.Copy, whose pieces are smaller.
func copyAll(to io.Writer, from io.Reader) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, chunk))
	return err
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
