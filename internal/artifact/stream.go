package artifact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// stream reads one published file: first the part that is kept on disk from earlier, then what the
// server sends, which it keeps as well. It remembers its own first error, for the decoders above it
// hide where an error came from.
type stream struct {
	r io.Reader
	// total is the length that the server announces, or -1.
	total int64
	// most is the length that the file cannot exceed.
	most int64
	n    int64
	err  error
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
	case s.n > s.most:
		s.err = &Error{Cause: TooLarge, what: fmt.Sprintf("it is larger than %d bytes", s.most)}
	case err == io.EOF && s.total >= 0 && s.n < s.total:
		s.err = netError(io.ErrUnexpectedEOF)
	case err != nil && err != io.EOF:
		s.err = netError(err)
	}
	if s.seen != nil && n > 0 {
		s.seen(s.n)
	}
	return n, cmp.Or(s.err, err)
}

// A connection is given up on which nothing arrives for patience, or less than minRate, in bytes
// per second averaged over that time.
const (
	patience = 20 * time.Second
	minRate  = 1024
)

// long bounds the time that the rest of a file may take while another place is faster.
const long = 5 * time.Minute

// watched is a response body whose connection is cancelled when nothing arrives. Only the time
// spent waiting for the network counts.
type watched struct {
	body   io.Reader
	ctx    context.Context
	cancel context.CancelCauseFunc
	// left counts the bytes that may still come; rival is the speed of the best other place.
	left, rival int64
	spent       time.Duration
	got         int64
}

// watch cancels a connection after patience, unless the timer is stopped.
func watch(cancel context.CancelCauseFunc) *time.Timer {
	return time.AfterFunc(patience, func() {
		cancel(&Error{Cause: Stalled, what: fmt.Sprintf("nothing arrived for %s", patience)})
	})
}

func (w *watched) Read(p []byte) (int, error) {
	begin, timer := time.Now(), watch(w.cancel)
	n, err := w.body.Read(p)
	timer.Stop()
	if err == io.EOF {
		return n, err
	}
	if err != nil {
		if cause, ok := errors.AsType[*Error](context.Cause(w.ctx)); ok {
			return n, cause
		}
		return n, err
	}
	w.spent += time.Since(begin)
	w.got += int64(n)
	w.left -= int64(n)
	if w.spent < patience {
		return n, nil
	}
	rate := int64(float64(w.got) / w.spent.Seconds())
	e := &Error{Cause: Stalled, rate: rate, what: fmt.Sprintf("only %d bytes arrived in %s", w.got,
		w.spent.Round(time.Millisecond))}
	switch {
	case rate < minRate:
		return n, e
	case w.left/rate > int64(long.Seconds()) && rate < w.rival/2:
		e.Cause = Slow
		return n, e
	}
	w.spent, w.got = 0, 0
	return n, nil
}
