package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// subject is a kind of Backend that the suite is run on.
type subject struct {
	// open makes an empty one; quota is in bytes, 0 is as large as it likes.
	open func(t *testing.T, quota int64) Backend
	// restore makes another of a snapshot.
	restore func(t *testing.T, snapshot []byte) Backend
	// abandon has a lease not be kept any more, as if its process had died.
	abandon func(b Backend, l Lease)
	// makeRoom has one that was full take writes again, after values were deleted.
	makeRoom func(t *testing.T, b Backend)
}

func TestMemoryConforms(t *testing.T) {
	subject{
		open: func(_ *testing.T, quota int64) Backend {
			m := NewMemory()
			m.SetQuota(quota)
			return m
		},
		restore: func(t *testing.T, snapshot []byte) Backend {
			m, err := RestoreMemory(bytes.NewReader(snapshot))
			if err != nil {
				t.Fatal(err)
			}
			return m
		},
		abandon:  func(b Backend, l Lease) { l.(*memoryLease).m.Kill() },
		makeRoom: func(*testing.T, Backend) {},
	}.conforms(t)
}

func TestEmbeddedConforms(t *testing.T) {
	subject{
		open: func(t *testing.T, quota int64) Backend {
			return embedded(t, t.TempDir(), Options{Quota: quota, NoSync: true})
		},
		restore: restored, abandon: abandonEtcd, makeRoom: defragmented,
	}.conforms(t)
}

func TestThreeMembersConform(t *testing.T) {
	subject{
		open: func(t *testing.T, quota int64) Backend {
			_, e := startMembers(t, 3, quota)
			return e
		},
		restore: restored, abandon: abandonEtcd, makeRoom: defragmented,
	}.conforms(t)
}

// embedded opens an etcd in the process.
func embedded(t *testing.T, dir string, o Options) *Etcd {
	t.Helper()
	e, err := Open(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, e) })
	return e
}

// startMembers starts an etcd of so many members and connects to it.
func startMembers(t *testing.T, n int, quota int64) (*storetest.Members, *Etcd) {
	t.Helper()
	m, err := storetest.Start(t.TempDir(), n, storetest.Options{Quota: quota, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Stop)
	e, err := Dial(External{Endpoints: m.Endpoints})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, e) })
	return m, e
}

func closed(t *testing.T, b Backend) {
	t.Helper()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func restored(t *testing.T, snapshot []byte) Backend {
	t.Helper()
	file, dir := filepath.Join(t.TempDir(), "snapshot"), t.TempDir()
	if err := os.WriteFile(file, snapshot, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Restore(file, dir); err != nil {
		t.Fatal(err)
	}
	return embedded(t, dir, Options{NoSync: true})
}

func abandonEtcd(_ Backend, l Lease) { l.(*etcdLease).stop() }

func defragmented(t *testing.T, b Backend) {
	t.Helper()
	e := b.(*Etcd)
	_, err := e.CompactAll(t.Context())
	before := e.Members(t.Context())
	err = errors.Join(err, e.Defragment(t.Context(), func(EtcdMember, bool) {}),
		e.Disarm(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range e.Members(t.Context()) {
		if m.Full || m.Size >= before[i].Size {
			t.Errorf("after maintenance: %+v; before: %+v", m, before[i])
		}
	}
}

// conforms runs the suite. The parts share a Backend; each has keys of its own.
func (s subject) conforms(t *testing.T) {
	b := s.open(t, 0)
	for name, part := range map[string]func(*testing.T, Backend){
		"reads": reads, "many keys at one revision": manyKeys, "commits": commits,
		"one winner": oneWinner, "scans": scans, "follows": follows, "resumes": resumes,
		"nothing changes": nothingChanges, "large transactions": largeTransactions,
	} {
		t.Run(name, func(t *testing.T) { part(t, b) })
	}
	t.Run("leases", func(t *testing.T) { s.leases(t, b) })
	t.Run("snapshot", func(t *testing.T) { s.snapshot(t, b) })
	t.Run("compaction", func(t *testing.T) { compacts(t, b) })
	t.Run("full", s.isFull)
}

// put writes values, in pairs of key and value, and returns the revision.
func put(t *testing.T, b Backend, pairs ...string) int64 {
	t.Helper()
	var writes []Write
	for i := 0; i < len(pairs); i += 2 {
		writes = append(writes, Write{Key: pairs[i], Value: []byte(pairs[i+1])})
	}
	return write(t, b, writes...)
}

func write(t *testing.T, b Backend, writes ...Write) int64 {
	t.Helper()
	revision, err := b.Commit(t.Context(), nil, writes)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

// values reads keys; those that are absent are "-".
func values(t *testing.T, b Backend, keys ...string) []string {
	t.Helper()
	got, _, err := b.Read(t.Context(), keys...)
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, key := range keys {
		if kv, ok := got[key]; ok {
			text = append(text, string(kv.Value))
		} else {
			text = append(text, "-")
		}
	}
	return text
}

func reads(t *testing.T, b Backend) {
	first := put(t, b, "reads/a", "1", "reads/b", "1")
	second := put(t, b, "reads/b", "2")
	got, at, err := b.Read(t.Context(), "reads/a", "reads/none", "reads/b")
	if err != nil || at != second {
		t.Errorf("read at %d, %v; want %d", at, err, second)
	}
	want := map[string]KV{
		"reads/a": {"reads/a", []byte("1"), first, first},
		"reads/b": {"reads/b", []byte("2"), second, first},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	write(t, b, Write{Key: "reads/b", Delete: true})
	again := put(t, b, "reads/b", "3")
	got, _, err = b.Read(t.Context(), "reads/b")
	if kv := got["reads/b"]; err != nil || kv.Created != again || kv.Revision != again {
		t.Errorf("one that was made again: %+v, %v; want it created at %d", kv, err, again)
	}
	if _, at, err := b.Read(t.Context()); err != nil || at != again {
		t.Errorf("a read of nothing: revision %d, %v; want %d", at, err, again)
	}
}

// Two keys that are always written together are never read apart, however many keys are read.
func manyKeys(t *testing.T, b Backend) {
	var keys []string
	for i := range 3 * MaxWrites {
		keys = append(keys, fmt.Sprintf("many/%04d", i))
	}
	first, last := keys[0], keys[len(keys)-1]
	put(t, b, first, "0", last, "0")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 1; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			v := []byte(fmt.Sprint(i))
			_, err := b.Commit(context.Background(), nil, []Write{
				{Key: first, Value: v}, {Key: last, Value: v},
			})
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for range 50 {
		got, at, err := b.Read(t.Context(), keys...)
		if err != nil || !bytes.Equal(got[first].Value, got[last].Value) ||
			got[last].Revision > at {
			t.Errorf("at %d: %+v, %+v, %v", at, got[first], got[last], err)
		}
	}
	close(stop)
	<-done
}

func commits(t *testing.T, b Backend) {
	ctx := t.Context()
	absent := []Condition{{"commits/a", 0}}
	first, err := b.Commit(ctx, absent, []Write{{Key: "commits/a", Value: []byte("1")}})
	if err != nil {
		t.Fatal(err)
	}
	for name, conditions := range map[string][]Condition{
		"absent, but it is there": absent, "another revision": {{"commits/a", first - 1}},
		"there, but it is absent": {{"commits/none", first}},
		"the second of two":       {{"commits/a", first}, {"commits/none", first}},
	} {
		_, err := b.Commit(ctx, conditions, []Write{
			{Key: "commits/b", Value: []byte("1")}, {Key: "commits/a", Delete: true},
		})
		if !errors.Is(err, ErrConflict) {
			t.Errorf("%s: %v; want a conflict", name, err)
		}
	}
	if diff := cmp.Diff([]string{"1", "-"}, values(t, b, "commits/a", "commits/b")); diff != "" {
		t.Errorf("after conflicts: %s", diff)
	}
	second, err := b.Commit(ctx, []Condition{{"commits/a", first}, {"commits/none", 0}},
		[]Write{{Key: "commits/b", Value: nil}, {Key: "commits/a", Delete: true}})
	if err != nil || second <= first {
		t.Errorf("revision %d after %d, %v", second, first, err)
	}
	if diff := cmp.Diff([]string{"-", ""}, values(t, b, "commits/a", "commits/b")); diff != "" {
		t.Error(diff)
	}
	if _, err := b.Commit(ctx, []Condition{{"commits/a", 0}}, []Write{
		{Key: "commits/none", Delete: true},
	}); err != nil {
		t.Errorf("the deletion of what is absent: %v", err)
	}
}

func oneWinner(t *testing.T, b Backend) {
	const writers = 20
	before := put(t, b, "race", "-")
	var all sync.WaitGroup
	won := make(chan string, writers)
	for i := range writers {
		all.Go(func() {
			v := fmt.Sprint(i)
			_, err := b.Commit(t.Context(), []Condition{{"race", before}},
				[]Write{{Key: "race", Value: []byte(v)}})
			if err == nil {
				won <- v
			} else if !errors.Is(err, ErrConflict) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if len(won) != 1 {
		t.Fatalf("%d writers won", len(won))
	}
	if diff := cmp.Diff([]string{<-won}, values(t, b, "race")); diff != "" {
		t.Error(diff)
	}
}

// A scan in pages at one revision sees nothing of what is written meanwhile.
func scans(t *testing.T, b Backend) {
	ctx := t.Context()
	const n = 500
	var last int64
	for i := 0; i < n; i += 100 {
		var writes []Write
		for j := range 100 {
			writes = append(writes,
				Write{Key: fmt.Sprintf("scans/%04d", i+j), Value: []byte("old")})
		}
		last = write(t, b, writes...)
	}
	put(t, b, "scans0", "beyond the prefix", "scan", "before it")
	now, err := b.Scan(ctx, "scans/", "", 1, 0)
	if err != nil || now.Revision <= last || !now.More {
		t.Fatalf("%+v, %v", now, err)
	}
	after, pages := "", 0
	var keys []string
	for {
		page, err := b.Scan(ctx, "scans/", after, 120, now.Revision)
		if err != nil || page.Revision != now.Revision {
			t.Fatalf("%+v, %v", page, err)
		}
		for _, kv := range page.KVs {
			if keys, after = append(keys, kv.Key), kv.Key; string(kv.Value) != "old" {
				t.Errorf("%s is %s", kv.Key, kv.Value)
			}
		}
		if pages++; !page.More {
			break
		}
		last := fmt.Sprintf("scans/%04d", n-pages)
		put(t, b, last, "new", last+"x", "new")
		write(t, b, Write{Key: fmt.Sprintf("scans/%04d", n-100-pages), Delete: true})
	}
	if len(keys) != n || pages != 5 || keys[0] != "scans/0000" || keys[n-1] != "scans/0499" {
		t.Errorf("%d keys on %d pages, from %s", len(keys), pages, keys[0])
	}
	if fresh, err := b.Scan(ctx, "scans/", "scans/0498", 10, 0); err != nil ||
		len(fresh.KVs) != 3 || fresh.More || fresh.Revision <= now.Revision {
		t.Errorf("what is there now: %+v, %v", fresh, err)
	}
	none, err := b.Scan(ctx, "scans/none/", "", 10, 0)
	if err != nil || none.More || len(none.KVs) > 0 {
		t.Errorf("nothing: %+v, %v", none, err)
	}
}

// followUntil follows a prefix until all events were seen, and returns them.
func followUntil(
	t *testing.T, b Backend, prefix string, after int64, enough func([]Event, int64) bool,
) []Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var events []Event
	reached, was := false, after
	err := b.Follow(ctx, prefix, after, func(batch Batch) {
		if reached {
			return
		}
		if batch.Revision < was {
			t.Errorf("the revision went back from %d to %d", was, batch.Revision)
		}
		was = batch.Revision
		if events = append(events, batch.Events...); enough(events, batch.Revision) {
			reached = true
			cancel()
		}
	})
	if !reached {
		t.Fatalf("ended after %d events: %v", len(events), err)
	}
	return events
}

// atLeast is enough when there are so many events.
func atLeast(n int) func([]Event, int64) bool {
	return func(events []Event, _ int64) bool { return len(events) >= n }
}

// patience is how long the suite waits for what must happen at some time.
const patience = time.Minute

func follows(t *testing.T, b Backend) {
	start := put(t, b, "follows/a", "1")
	one := put(t, b, "follows/a", "2", "follows/b", "1", "elsewhere", "1")
	two := write(t, b, Write{Key: "follows/b", Delete: true})
	go func() { // while it is followed
		_, err := b.Commit(context.Background(), nil,
			[]Write{{Key: "follows/c", Value: []byte("1")}})
		if err != nil {
			t.Error(err)
		}
	}()
	events := followUntil(t, b, "follows/", start, atLeast(4))
	three := events[3].Revision
	want := []Event{
		{KV: KV{"follows/a", []byte("2"), one, start}}, {KV: KV{"follows/b", []byte("1"), one,
			one}},
		{KV: KV{"follows/b", nil, two, 0}, Deleted: true},
		{KV: KV{"follows/c", []byte("1"), three, three}},
	}
	if diff := cmp.Diff(want, events); diff != "" || three <= two {
		t.Error(diff)
	}
	again := followUntil(t, b, "follows/", one, atLeast(2))
	if diff := cmp.Diff(want[2:], again); diff != "" {
		t.Errorf("from the middle: %s", diff)
	}
}

// Who goes on from the revision of each batch, also of one of many when far behind, misses nothing
// and sees nothing twice.
func resumes(t *testing.T, b Backend) {
	const n = 2500
	after := put(t, b, "resumes", "the start")
	var all sync.WaitGroup
	for w := range 10 {
		all.Go(func() {
			for i := range n / 10 {
				key := fmt.Sprintf("resumes/%02d-%04d", w, i)
				_, err := b.Commit(t.Context(), nil, []Write{{Key: key, Value: []byte("1")}})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	seen := map[string]int{}
	for len(seen) < n {
		for _, e := range followUntil(t, b, "resumes/", after, func(e []Event, at int64) bool {
			after = at
			return len(e) > 0
		}) {
			seen[e.Key]++
		}
	}
	for key, times := range seen {
		if times != 1 {
			t.Errorf("%s was seen %d times", key, times)
		}
	}
}

// Who follows a prefix in which nothing changes learns how far the store is.
func nothingChanges(t *testing.T, b Backend) {
	start := put(t, b, "quiet", "1")
	behind, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // another follower must not keep it from that
		_ = b.Follow(behind, "resumes/", start, func(Batch) {}) // until it is cancelled
	}()
	later := put(t, b, "elsewhere", "2")
	events := followUntil(t, b, "quiet/", start,
		func(_ []Event, at int64) bool { return at >= later })
	if len(events) != 0 {
		t.Errorf("%+v", events)
	}
}

func largeTransactions(t *testing.T, b Backend) {
	ctx := t.Context()
	var writes []Write
	var conditions []Condition
	for i := range MaxWrites + 1 {
		key := fmt.Sprintf("large/%04d", i)
		writes = append(writes, Write{Key: key, Value: []byte("1")})
		conditions = append(conditions, Condition{Key: key})
	}
	if _, err := b.Commit(ctx, nil, writes); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%d writes: %v", len(writes), err)
	}
	if _, err := b.Commit(ctx, conditions, writes[:1]); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%d conditions: %v", len(conditions), err)
	}
	heavy := []Write{{Key: "large/0000", Value: make([]byte, 800<<10)},
		{Key: "large/0001", Value: make([]byte, 800<<10)}}
	if _, err := b.Commit(ctx, nil, heavy); !errors.Is(err, ErrTooLarge) {
		t.Errorf("writes of 1600 KiB: %v", err)
	}
	if got := values(t, b, "large/0000"); got[0] != "-" {
		t.Errorf("something was written: %s", got)
	}
	if _, err := b.Commit(ctx, conditions[:MaxWrites], writes[:MaxWrites]); err != nil {
		t.Errorf("%d writes: %v", MaxWrites, err)
	}
	if got := values(t, b, "large/0000", "large/0127"); got[0] != "1" || got[1] != "1" {
		t.Errorf("not all was written: %s", got)
	}
}

// What is written with a lease vanishes when it is closed or not kept, and not before.
func (s subject) leases(t *testing.T, b Backend) {
	ctx := t.Context()
	for name, end := range map[string]func(*testing.T, Lease){
		"closed": func(t *testing.T, l Lease) {
			if err := errors.Join(l.Close(), l.Close()); err != nil {
				t.Error(err)
			}
		},
		"abandoned": func(_ *testing.T, l Lease) { s.abandon(b, l) },
	} {
		t.Run(name, func(t *testing.T) {
			holder := b
			if m, ok := b.(*Memory); ok {
				holder = m.Another()
			}
			asked := time.Now()
			l, err := holder.Lease(ctx, 2*time.Second)
			if err != nil || l.ID() == 0 || !l.Until().After(asked) {
				t.Fatalf("%+v, %v", l, err)
			}
			key := "leases/" + name
			start := write(t, b, Write{Key: key, Value: []byte("1"), Lease: l.ID()},
				Write{Key: key + "/freed", Value: []byte("1"), Lease: l.ID()})
			put(t, b, key+"/freed",
				"2") // another write takes it off the lease
			for first := l.Until(); !l.Until().After(first); { // until it was kept
				time.Sleep(time.Millisecond)
			}
			if got := values(t, b, key); got[0] != "1" {
				t.Error("it has vanished while its lease is kept")
			}
			end(t, l)
			followUntil(t, b, key, start, func(events []Event, _ int64) bool {
				return len(events) > 1 && events[len(events)-1].Deleted
			})
			if name == "closed" { // who is dead learns nothing
				<-l.Done()
			}
			if got := values(t, b, key, key+"/freed"); got[0] != "-" || got[1] != "2" {
				t.Errorf("after the end: %s", got)
			}
			if name == "abandoned" && time.Now().Before(l.Until()) {
				t.Error("it has ended before its holder could know")
			}
			_, err = b.Commit(ctx, nil, []Write{{Key: key, Value: []byte("2"), Lease: l.ID()}})
			if err == nil || errors.Is(err, ErrConflict) {
				t.Errorf("a write with a lease that has ended: %v", err)
			}
		})
	}
}

func (s subject) snapshot(t *testing.T, b Backend) {
	put(t, b, "snapshot/a", "1", "snapshot/b", "1")
	put(t, b, "snapshot/a", "2")
	var file bytes.Buffer
	if err := b.Snapshot(t.Context(), &file); err != nil {
		t.Fatal(err)
	}
	put(t, b, "snapshot/a", "3")
	other := s.restore(t, file.Bytes())
	got := values(t, other, "snapshot/a", "snapshot/b")
	if diff := cmp.Diff([]string{"2", "1"}, got); diff != "" {
		t.Error(diff)
	}
	put(t, other, "snapshot/a", "4")
}

func compacts(t *testing.T, b Backend) {
	ctx := t.Context()
	start := put(t, b, "compaction/a", "1")
	put(t, b, "compaction/a", "2")
	at := put(t, b, "compaction/b", "1")
	last := put(t, b, "compaction/b", "2")
	if err := b.Compact(ctx, at); err != nil {
		t.Fatal(err)
	}
	if err := b.Compact(ctx, start); !errors.Is(err, ErrCompacted) {
		t.Errorf("a compaction to before: %v", err)
	}
	err := b.Follow(ctx, "compaction/", start, func(Batch) {})
	if !errors.Is(err, ErrCompacted) {
		t.Errorf("follow from before: %v", err)
	}
	if _, err := b.Scan(ctx, "compaction/", "", 10, start); !errors.Is(err, ErrCompacted) {
		t.Errorf("a scan of before: %v", err)
	}
	page, err := b.Scan(ctx, "compaction/", "", 10, at)
	if err != nil || len(page.KVs) != 2 || string(page.KVs[1].Value) != "1" {
		t.Errorf("a scan of then: %+v, %v", page, err)
	}
	events := followUntil(t, b, "compaction/", at-1, atLeast(2))
	if events[0].Revision != at || events[1].Revision != last {
		t.Errorf("%+v", events)
	}
	if got := values(t, b, "compaction/a", "compaction/b"); got[0] != "2" || got[1] != "2" {
		t.Errorf("what is there now: %s", got)
	}
}

// A store that is full refuses writes, says so, and does everything else.
func (s subject) isFull(t *testing.T) {
	ctx := t.Context()
	b := s.open(t, 2<<20)
	health := func(full bool) {
		t.Helper()
		h, err := b.Health(ctx)
		if err != nil || h.Full != full || h.Revision == 0 || h.Size <= 0 {
			t.Errorf("health %+v, %v; want full %v", h, err, full)
		}
	}
	put(t, b, "small", "1")
	health(false)
	var err error
	var keys []string
	for i := 0; err == nil && i < 1000; i++ {
		keys = append(keys, fmt.Sprintf("full/%03d", i))
		_, err = b.Commit(ctx, nil, []Write{{Key: keys[i], Value: make([]byte, 64<<10)}})
	}
	if !errors.Is(err, ErrFull) {
		t.Fatalf("after %d writes: %v; want that it is full", len(keys), err)
	}
	health(true)
	if got := values(t, b, "small", keys[0]); got[0] != "1" || len(got[1]) != 64<<10 {
		t.Errorf("reads of a full store: %.10s", got)
	}
	_, err = b.Commit(ctx, nil, []Write{{Key: "small", Value: make([]byte, 64<<10)}})
	if !errors.Is(err, ErrFull) {
		t.Errorf("another write: %v", err)
	}
	if got := values(t, b, "small"); got[0] != "1" {
		t.Error("a full store has taken a write")
	}
	for _, key := range keys {
		write(t, b, Write{Key: key, Delete: true})
	}
	s.makeRoom(t, b)
	put(t, b, "small", "2")
	health(false)
}
