package artifact

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

type download struct {
	f    *Fetcher
	a    Artifact
	high int64  // the max of bytes ever kept
	from string // the URL of all kept bytes; "" if from several or an earlier run
}

func (d *download) attempt(ctx context.Context, c candidate) (gained bool, err error) {
	done, err := d.f.Touch.before(fmt.Sprintf("get %s from %s", d.a, c)) // the whole attempt
	if err != nil {
		return false, err
	}
	defer done()
	if c.file {
		return false, d.local(ctx, c)
	}
	name := filepath.Join(d.f.Store, d.kept(c.zst))
	kept, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return false, diskError(err)
	}
	defer kept.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err = d.remote(ctx, cancel, c, kept); err == nil {
		return true, nil
	}
	if e, ok := errors.AsType[*Error](err); ok && e.Cause == DiskFull && d.a.Size == 0 &&
		c.rival == untried {
		err = &Error{Cause: TooLarge, what: "the disk is full"} // perhaps more than the file has
	}
	n, serr := kept.Seek(0, io.SeekEnd)
	if serr == nil && n >= d.high+64<<10 { // fewer new bytes do not count as progress
		d.high, gained = n, true
	}
	if e, ok := errors.AsType[*Error](err); n == 0 || ok &&
		(e.Cause == Digest || e.Cause == Archive || e.Cause == TooLarge) {
		if rerr := d.discard(c.zst); rerr != nil {
			return gained, rerr
		}
	}
	return gained, err
}

func (d *download) kept(zst bool) string {
	if zst {
		return keptPrefix + d.a.ID + ".zst"
	}
	return keptPrefix + d.a.ID
}

func (d *download) remote(
	ctx context.Context, cancel context.CancelCauseFunc, c candidate, kept *os.File,
) error {
	have, err := kept.Seek(0, io.SeekEnd)
	if err != nil {
		return diskError(err)
	}
	if have == 0 {
		d.from = c.url
	}
	timer := watch(cancel)
	// The digest verifies that the bytes belong to the same file as the kept ones.
	resp, err := d.f.Source.get(ctx, c.url, have)
	timer.Stop()
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	offset, total, err := d.accept(resp, c, have)
	if err != nil {
		return err
	}
	most := d.a.maxBytes(c.zst)
	body := bufio.NewReaderSize(&watched{body: resp.Body, ctx: ctx, cancel: cancel,
		left: cmp.Or(max(total, 0), most) - offset, rival: c.rival}, chunk)
	if offset == 0 {
		if head, _ := body.Peek(512); strings.HasPrefix(http.DetectContentType(head), "text/html") {
			return captivePortal()
		}
	}
	if offset < have {
		err := d.f.Touch.do(func() error {
			_, err := kept.Seek(offset, io.SeekStart)
			return cmp.Or(kept.Truncate(offset), err)
		}, "truncate %s", kept.Name())
		if err != nil {
			return err
		}
		d.from = c.url
	}
	src := &stream{total: total, most: most, seen: d.progress(total)}
	keeping := io.TeeReader(body, &diskWriter{f: kept})
	src.r = io.MultiReader(io.NewSectionReader(kept, 0, offset), keeping)
	return d.receive(src, c, kept)
}

// accept checks a response: the offset of its first byte, and the file's length (-1 if unknown).
func (d *download) accept(
	resp *http.Response, c candidate, have int64,
) (first, total int64, err error) {
	first, total = -1, -1
	switch resp.StatusCode {
	case http.StatusOK:
		first, total = 0, resp.ContentLength
	case http.StatusPartialContent:
		var last int64
		if n, _ := fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes %d-%d/%d", &first, &last,
			&total); n < 2 || first != have {
			return 0, 0, &Error{Cause: Status,
				what: "the server answered with a different range than requested"}
		}
	case http.StatusRequestedRangeNotSatisfiable:
		n, _ := fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes */%d", &total)
		switch {
		case have == 0:
			return 0, 0, statusError(resp.StatusCode)
		case n != 1 || total != have:
			return 0, 0, &Error{Cause: Digest, mixed: true,
				what: "the partial download does not match the file"}
		}
		resp.Body = http.NoBody
		first = have
	default:
		return 0, 0, statusError(resp.StatusCode)
	}
	if most := d.a.maxBytes(c.zst); total > most {
		return 0, 0, &Error{Cause: TooLarge,
			what: fmt.Sprintf("it has %d bytes, more than %d", total, most)}
	}
	if d.from != c.url {
		d.from = ""
	}
	return first, total, nil
}

// progress returns a function that sends an event, at most five times per second.
func (d *download) progress(total int64) func(int64) {
	var last time.Time
	return func(n int64) {
		if now := time.Now(); now.Sub(last) >= 200*time.Millisecond || n == total {
			last = now
			d.f.event(Event{Kind: Progress, Artifact: d.a, Bytes: n, Total: max(total, 0)})
		}
	}
}

// receive verifies the whole file and puts it into the store. A plain binary from a server is the
// kept file itself; anything else is unpacked first, and becomes an entry if its digest is right.
func (d *download) receive(src *stream, c candidate, kept *os.File) error {
	sum := newDigest(d.a.ID)
	if c.zst && d.a.Archive {
		sum = newDigest(d.a.TarSHA256)
	}
	if kept == nil || c.zst || d.a.Archive {
		return d.f.build(d.a, func(t tree) error {
			return d.verdict(src, c, sum, unpack(t, d.a, c.zst, src, sum))
		})
	}
	if err := d.verdict(src, c, sum, copyAll(sum, src)); err != nil {
		return err
	}
	return d.f.build(d.a, func(t tree) error {
		if err := kept.Chmod(0o755); err != nil {
			return diskError(err)
		}
		return d.f.rename(kept.Name(), filepath.Join(t.Name(), string(d.a.Name)))
	})
}

func (d *download) tidy() error {
	if err := cmp.Or(d.discard(false), d.discard(true)); err != nil {
		return fmt.Errorf("cannot clean up after %s: %w", d.a, err)
	}
	return nil
}

func (d *download) discard(zst bool) error {
	path := filepath.Join(d.f.Store, d.kept(zst))
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return d.f.Touch.do(func() error { return os.Remove(path) }, "remove %s", path)
}

func (d *download) local(ctx context.Context, c candidate) error {
	f, size, err := d.f.Source.open(ctx, c)
	if err != nil {
		return err
	}
	defer f.Close()
	d.from = c.url
	return d.receive(&stream{r: f, total: size, most: d.a.maxBytes(c.zst), seen: d.progress(size)}, c,
		nil)
}

// verdict returns the result of reading a whole file. An error of a decoder counts only if the
// bytes were the published ones; otherwise the digest explains it.
func (d *download) verdict(src *stream, c candidate, sum *digest, err error) error {
	known, typed := errors.AsType[*Error](err)
	switch wrong := sum.mismatch(); {
	case src.err != nil:
		return src.err
	case typed && (known.Local() || c.zst):
		return known
	case err != nil && c.zst:
		return &Error{Cause: Digest, Err: fmt.Errorf("cannot unpack the zstd variant: %w", err)}
	case wrong != nil:
		wrong.mixed = d.from != c.url
		return wrong
	case typed:
		return known
	case err != nil:
		return &Error{Cause: Archive,
			Err: fmt.Errorf("the digest is right, but the archive cannot be unpacked: %w", err)}
	}
	return nil
}

// stream reads one published file: the bytes kept on disk, then those that the server sends. It
// remembers its own first error, as decoders above it hide where an error came from.
type stream struct {
	r     io.Reader
	total int64 // the length sent by the server, or -1
	most  int64 // the max length of the file
	n     int64
	err   error
	seen  func(n int64) // called with the number of bytes read so far; may be nil
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

// A connection is given up if less than minRate, in bytes per second, arrives for patience.
const (
	patience = 20 * time.Second
	minRate  = 1024
)

const long = 5 * time.Minute // bounds the remaining time of a file while another place is faster

// watched is a response body that cancels a stalled connection. Only waits for the network count.
type watched struct {
	body   io.Reader
	ctx    context.Context
	cancel context.CancelCauseFunc
	// left is the max number of remaining bytes; rival is the speed of the best other place.
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
	if err != nil {
		if cause, ok := errors.AsType[*Error](context.Cause(w.ctx)); ok && err != io.EOF {
			err = cause
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
