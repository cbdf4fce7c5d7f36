package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// maxDownload bounds a published file, so that a broken server cannot fill the disk.
const maxDownload = 1 << 30

// chunk is the size of reads from the network and of writes to the disk.
const chunk = 256 << 10

// stream reads one published file: first the part that is kept on disk from earlier, then what the
// server sends, which it keeps as well. It remembers its own first error, for the decoders above it
// hide where an error came from.
type stream struct {
	r io.Reader
	// total is the length that the server announces, or -1.
	total int64
	n     int64
	err   error
	// seen hears of the bytes read so far; may be nil.
	seen func(n int64)
}

func (s *stream) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.r.Read(p)
	s.n += int64(n)
	switch {
	case s.n > maxDownload:
		s.err = &Error{Cause: TooLarge,
			what: fmt.Sprintf("it is larger than %d bytes", maxDownload)}
	case err == io.EOF && s.total >= 0 && s.n < s.total:
		s.err = netError(io.ErrUnexpectedEOF)
	case err != nil && err != io.EOF:
		s.err = netError(err)
	}
	if s.seen != nil && n > 0 {
		s.seen(s.n)
	}
	if s.err != nil {
		return n, s.err
	}
	return n, err
}

// keeper writes what it reads from the network to the kept file.
type keeper struct {
	body io.Reader
	kept *os.File
}

func (k *keeper) Read(p []byte) (int, error) {
	n, err := k.body.Read(p)
	if n > 0 {
		if _, werr := k.kept.Write(p[:n]); werr != nil {
			return n, diskError(werr)
		}
	}
	return n, err
}

// watch cancels a connection on which nothing arrives. Only the time spent waiting for the network
// counts.
type watch struct {
	policy Policy
	cancel context.CancelCauseFunc
	timer  *time.Timer
	begin  time.Time
	spent  time.Duration
	got    int64
}

func newWatch(p Policy, cancel context.CancelCauseFunc) *watch {
	w := &watch{policy: p, cancel: cancel}
	w.timer = time.AfterFunc(p.Stall, func() { cancel(w.silent()) })
	w.timer.Stop()
	return w
}

func (w *watch) silent() *Error {
	return &Error{Cause: Stalled, what: fmt.Sprintf("nothing arrived for %s", w.policy.Stall)}
}

func (w *watch) arm() {
	w.begin = time.Now()
	w.timer.Reset(w.policy.Stall)
}

// disarm ends a wait that brought n bytes; the error says that the connection is too slow to be
// alive.
func (w *watch) disarm(n int) error {
	w.timer.Stop()
	w.spent += time.Since(w.begin)
	w.got += int64(n)
	if w.spent < w.policy.Stall {
		return nil
	}
	least := int64(float64(w.policy.MinRate) * w.spent.Seconds())
	if w.got < least {
		return &Error{Cause: Stalled,
			what: fmt.Sprintf("only %d bytes arrived in %s", w.got,
				w.spent.Round(time.Millisecond))}
	}
	w.spent, w.got = 0, 0
	return nil
}

// watched is a response body under a watch.
type watched struct {
	body io.ReadCloser
	ctx  context.Context
	w    *watch
}

func (b *watched) Read(p []byte) (int, error) {
	b.w.arm()
	n, err := b.body.Read(p)
	slow := b.w.disarm(n)
	if err != nil && err != io.EOF {
		if cause := new(Error); errors.As(context.Cause(b.ctx), &cause) {
			return n, cause
		}
		return n, err
	}
	if slow != nil && err == nil {
		return n, slow
	}
	return n, err
}
