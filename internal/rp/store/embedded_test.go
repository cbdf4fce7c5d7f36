package store

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// Only a lock that another process keeps is waited for, and blamed on one.
func TestTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := func(errs ...error) func() error {
			return func() error {
				err := errs[0]
				if len(errs) > 1 {
					errs = errs[1:]
				}
				return err
			}
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for _, tt := range []struct {
			ctx   context.Context
			lock  func() error
			want  error
			takes bool
		}{
			{t.Context(), answers(nil), nil, false},
			{t.Context(), answers(unix.EWOULDBLOCK, unix.EINTR, unix.EWOULDBLOCK, nil), nil, true},
			{t.Context(), answers(unix.EWOULDBLOCK), errInUse, true},
			{t.Context(), answers(unix.ENOLCK), unix.ENOLCK, false},
			{gone, answers(unix.EWOULDBLOCK), errInUse, false},
		} {
			began := time.Now()
			err := take(tt.ctx, tt.lock)
			if !errors.Is(err, tt.want) || errors.Is(err, errInUse) != (tt.want == errInUse) ||
				(time.Since(began) > 0) != tt.takes {
				t.Errorf("%v after %s, not %v", err, time.Since(began), tt.want)
			}
		}
	})
}
