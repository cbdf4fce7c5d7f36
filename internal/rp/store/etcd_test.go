package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

func TestBackupAndRestore(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	e := embedded(t, dir, Options{})
	put(t, e, "a", "1")
	file := filepath.Join(t.TempDir(), "backup")
	must(0, Backup(ctx, LocalEndpoint(dir), file))
	equal(t, "the mode of a backup", must(os.Stat(file)).Mode().Perm(), 0o600)
	refused(t, "a backup over another", Backup(ctx, LocalEndpoint(dir), file), "")
	_, err := Open(ctx, dir, Options{})
	refused(t, "a second program opens the directory", err, "another")
	refused(t, "a restore over a store", Restore(file, dir), "")
	broken := filepath.Join(t.TempDir(), "broken")
	text := must(os.ReadFile(file))
	text[len(text)/2] ^= 1
	must(0, os.WriteFile(broken, text, 0o600))
	refused(t, "a backup that was damaged is restored", Restore(broken, t.TempDir()), "")
}

// A caller of a store that accepts connections but never answers gets an error after a while.
func TestSilentStore(t *testing.T) {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	defer listener.Close()
	e := must(Dial(External{Endpoints: []string{"http://" + listener.Addr().String()}}))
	defer e.Close()
	e.patience = 20 * time.Millisecond
	_, _, read := e.Read(t.Context(), "a")
	_, commit := e.Commit(t.Context(), nil, []Write{{Key: "a", Value: []byte("1")}})
	_, scan := e.Scan(t.Context(), "a", "", 1, 0)
	for what, err := range map[string]error{"read": read, "commit": commit, "scan": scan} {
		isError(t, what, err, errSilent)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := e.Read(gone, "a"); errors.Is(err, errSilent) || err == nil {
		t.Errorf("a caller that no longer waits gets: %v", err)
	}
}

// Writes are there after the program was stopped and started again.
func TestOpenAgain(t *testing.T) {
	dir := t.TempDir()
	e := must(Open(t.Context(), dir, Options{}))
	revision := put(t, e, "a", "1")
	closed(t, e)
	equal(t, "the mode of the directory", must(os.Stat(dir)).Mode().Perm(), 0o700)
	got, at, err := embedded(t, dir, Options{}).Read(t.Context(), "a")
	if err != nil || string(got["a"].Value) != "1" || at != revision {
		t.Errorf("%+v at %d, %v", got, at, err)
	}
}

// Health writes nothing, not even in a full store: M9.
func TestHealthWritesNothing(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	e := embedded(t, dir, Options{NoSync: true})
	put(t, e, "a", "1")
	before := e.server.Server.CommittedIndex()
	const calls = 50
	for range calls {
		if h, err := e.Health(ctx); err != nil || h.Full || h.Quota != defaultQuota || h.Size == 0 {
			t.Errorf("%+v, %v", h, err)
		}
	}
	outside := must(Dial(LocalEndpoint(dir)))
	t.Cleanup(func() { closed(t, outside) })
	if h, err := outside.Health(ctx); err != nil || h.Revision == 0 || h.Quota != defaultQuota {
		t.Errorf("through its socket: %+v, %v", h, err)
	}
	if id, err := outside.ClusterID(ctx); err != nil || len(id) < 8 {
		t.Errorf("the cluster's id is %q, %v", id, err)
	}
	// etcd itself writes a few things once, shortly after its start.
	if after := e.server.Server.CommittedIndex(); after-before >= calls/2 {
		t.Errorf("the log has grown from %d to %d with %d calls", before, after, calls)
	}
}

// A cluster that has lost one of three members works; one that has lost two reports that, and
// Health returns an error instead of waiting for ever.
func TestMembersAreLost(t *testing.T) {
	ctx := t.Context()
	stop, e := startMembers(t, 3, 0)
	revision := put(t, e, "a", "1")
	stop[0]()
	put(t, e, "a", "2")
	followUntil(t, e, "a", revision, atLeast(1))
	if h, err := e.Health(ctx); err != nil || h.Size == 0 {
		t.Errorf("with one of three gone: %+v, %v", h, err)
	}
	gone := 0
	for _, member := range e.Members(ctx) {
		if member.Err != nil {
			gone++
		}
	}
	equal(t, "members that are gone", gone, 1)
	stop[1]()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for err := error(nil); err == nil; {
		_, err = e.Health(ctx)
	}
	isError(t, "the wait for Health after two of three members are gone", ctx.Err(), nil)
}

// A nearly full disk refuses writes before etcd fails and ends: reads and deletions work, and
// everything does when there is room again.
func TestDiskIsFull(t *testing.T) {
	ctx := t.Context()
	e := embedded(t, t.TempDir(), Options{NoSync: true})
	put(t, e, "a", "1", "b", "1")
	free := e.free
	e.free = func() int64 { return reserve - 1 }
	_, err := e.Commit(ctx, nil, []Write{{Key: "a", Value: []byte("2")}})
	isError(t, "a write", err, ErrFull)
	isError(t, "a write", err, ErrNoRoom)
	equal(t, "what it has written", values(t, e, "a")[0], "1")
	if h, err := e.Health(ctx); err != nil || !h.Full || !h.NoRoom || h.Free != reserve-1 {
		t.Errorf("%+v, %v", h, err)
	}
	must(e.Commit(ctx, nil, []Write{{Key: "b", Delete: true}}))
	l := must(e.Lease(t.Context(), time.Minute))
	write(t, e, Write{Key: "c", Value: []byte("x"), Lease: l.ID()})
	equal(t, "the values of a replica's claim", len(values(t, e, "c")), 1)
	must(0, l.Close())
	e.free = free
	put(t, e, "a", "3")
	if h, err := e.Health(ctx); err != nil || h.Full || h.NoRoom {
		t.Errorf("with room again: %+v, %v", h, err)
	}
	if n := free(); n <= 0 {
		t.Errorf("free are %d", n)
	}
}

// Replicas that compact together keep the changes of one to two intervals.
func TestCompactor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		m := storetest.NewMemory()
		failed := func(err error) {
			if ctx.Err() == nil {
				t.Error(err)
			}
		}
		for i := range 3 {
			go func() {
				time.Sleep(time.Duration(i) * time.Minute) // they start apart
				New(m.Another()).KeepCompacted(ctx, failed)
			}()
		}
		at := map[int]int64{} // revision by minute
		for minute := range 60 {
			at[minute] = put(t, m, "a", fmt.Sprint(minute))
			if minute > 2*int(CompactEvery/time.Minute) {
				recent, old := at[minute-5], at[minute-11]
				isError(t, fmt.Sprintf("in minute %d the changes of 5 minutes before", minute),
					compactedBefore(t, m, recent), nil)
				isError(t, fmt.Sprintf("in minute %d the changes of 11 minutes before", minute),
					compactedBefore(t, m, old), ErrCompacted)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		stop()
		synctest.Wait()
	})
}

// compactedBefore reads at a revision.
func compactedBefore(t *testing.T, b Backend, revision int64) error {
	_, err := b.Scan(t.Context(), "a", "", 1, revision)
	return err
}

// Only a lock of another process is waited for, and reported as such.
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

// A compaction of an etcd in this process runs beside its caller, and no second one queues up.
func TestCompactionsDoNotQueue(t *testing.T) {
	ctx, e := t.Context(), embedded(t, t.TempDir(), Options{NoSync: true})
	var at int64
	for i := range 160 {
		var all []Write
		for j := range MaxWrites {
			all = append(all, Write{Key: fmt.Sprintf("%s%d/%d", root, i, j), Value: []byte("x")})
		}
		at = must(e.Commit(ctx, nil, all))
	}
	must(0, e.Compact(ctx, at-2))
	runs := func() bool {
		begun, ended := e.compactions()
		return begun > ended
	}
	equal(t, "it runs", runs(), true)
	must(0, e.Compact(ctx, at-1))
	must(0, compactedBefore(t, e, at-2))
	for runs() {
		time.Sleep(time.Millisecond)
	}
	must(0, e.Compact(ctx, at-1))
	isError(t, "after it", compactedBefore(t, e, at-2), ErrCompacted)
}

// A read of an etcd in this process does not fail because history is discarded.
func TestReadBesideACompaction(t *testing.T) {
	ctx, e := t.Context(), embedded(t, t.TempDir(), Options{NoSync: true})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 100 {
			put(t, e, "a", "x")
			must(e.CompactAll(ctx))
		}
	}()
	keys := slices.Repeat([]string{"a"}, MaxWrites)
	for {
		_, _, err := e.Read(ctx, keys...)
		isError(t, "a read", err, nil)
		select {
		case <-done:
			return
		default:
		}
	}
}
