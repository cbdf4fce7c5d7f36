package generation

import (
	"context"
	"errors"
	"os"
	"runtime"
	"testing"
)

// touch kills the process at the touch that left counts down to: nothing after it is executed.
func (d *disk) touch(string) (done func(), err error) {
	d.touches++
	if d.left == 0 {
		runtime.Goexit()
	}
	d.left--
	return func() {}, nil
}

// killed runs do in a process that is killed at its n-th touch; false when it has ended before.
func (d *disk) killed(t *testing.T, n int, do func(context.Context) error) bool {
	t.Helper()
	ended, killed := make(chan struct{}), true
	d.left = n
	go func() {
		defer close(ended)
		err := do(t.Context())
		killed = false
		if err != nil {
			t.Error(err)
		}
	}()
	<-ended
	d.left = -1
	d.reopen()
	return killed
}

// A write that is killed anywhere leaves a generation that is whole or is not used, and the next
// write makes it whole. A pointer never leads to a half.
func TestKilledSave(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a run for each write takes long; make test has it")
	}
	former, g := rendered(t, 110), rendered(t, 42)
	n := 0
	for ; ; n++ {
		d := newDisk(t)
		d.save(t, former)
		if err := d.Point(t.Context(), Live, former.ID); err != nil {
			t.Fatal(err)
		}
		switchOver := func(ctx context.Context) error {
			return errors.Join(d.Save(ctx, g), d.Point(ctx, Live, g.ID))
		}
		killed := d.killed(t, n, switchOver)
		live, err := d.Read(t.Context(), Live)
		if err != nil || live.ID != former.ID && live.ID != g.ID {
			t.Fatalf("killed at %d: live is %v, %v", n, live, err)
		}
		if err := switchOver(t.Context()); err != nil {
			t.Fatalf("killed at %d, then %v", n, err)
		}
		if live, err := d.Read(t.Context(), Live); err != nil || live.ID != g.ID {
			t.Fatalf("killed at %d and run again: live is %v, %v", n, live, err)
		}
		if !killed {
			break
		}
	}
	if n < 5 {
		t.Errorf("%d points only", n)
	}
}

// A collection that is killed anywhere leaves what is kept whole, and the next one finishes it.
func TestKilledCollect(t *testing.T) {
	kept, gone := rendered(t, 110), rendered(t, 42)
	n := 0
	for ; ; n++ {
		d := newDisk(t)
		d.save(t, kept)
		d.save(t, gone)
		killed := d.killed(t, n, func(ctx context.Context) error { return d.Collect(ctx, kept.ID) })
		if _, err := d.Load(kept.ID); err != nil {
			t.Fatalf("killed at %d: %v", n, err)
		}
		if err := d.Collect(t.Context(), kept.ID); err != nil {
			t.Fatalf("killed at %d, then %v", n, err)
		}
		_, err := os.Stat(d.file("/state/generations/" + gone.ID))
		if !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("killed at %d: not collected, %v", n, err)
		}
		if !killed {
			break
		}
	}
	if n < 2 {
		t.Errorf("%d points only", n)
	}
}

// A disk that cannot be written, listed or read is an error that names what could not be done.
func TestBrokenDisk(t *testing.T) {
	d, g := newDisk(t), rendered(t, 110)
	ctx := t.Context()
	if err := os.WriteFile(d.file("/state/generations"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Collect(ctx); err == nil {
		t.Error("a file was collected")
	}
	d.Dir = "/nowhere"
	if err := d.Save(ctx, g); err == nil {
		t.Error("saved below a directory that is not there")
	}
	if err := d.Point(ctx, Live, g.ID); err == nil {
		t.Error("pointed below a directory that is not there")
	}
}
