package store

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// subject is a kind of Backend for the suite.
type subject struct {
	// open makes an empty one; quota is in bytes, 0 is as large as it likes.
	open func(t *testing.T, quota int64) Backend
	// restored makes another of a backup of one.
	restored func(t *testing.T, b Backend) Backend
	// abandon has a lease not be kept any more, as if its process had died.
	abandon func(b Backend, l Lease)
	// makeRoom has one that was full take writes again, after values were deleted.
	makeRoom func(t *testing.T, b Backend)
}

func TestMemoryConforms(t *testing.T) {
	subject{
		open: func(_ *testing.T, quota int64) Backend {
			m := storetest.NewMemory()
			m.SetQuota(quota)
			return m
		},
		restored: func(_ *testing.T, b Backend) Backend { return b.(*storetest.Memory).Copy() },
		abandon:  func(b Backend, _ Lease) { b.(*storetest.Memory).Kill() },
		makeRoom: func(*testing.T, Backend) {},
	}.conforms(t)
}

func TestEmbeddedConforms(t *testing.T) {
	subject{
		open: func(t *testing.T, quota int64) Backend {
			return embedded(t, t.TempDir(), Options{Quota: quota, NoSync: true})
		},
		restored: restored, abandon: abandonEtcd, makeRoom: defragmented,
	}.conforms(t)
}

func TestThreeMembersConform(t *testing.T) {
	subject{
		open: func(t *testing.T, quota int64) Backend {
			_, e := startMembers(t, 3, quota)
			return e
		},
		restored: restored, abandon: abandonEtcd, makeRoom: defragmented,
	}.conforms(t)
}

// embedded opens an etcd in the process.
func embedded(t *testing.T, dir string, o Options) *Etcd {
	t.Helper()
	e := must(Open(t.Context(), dir, o))
	t.Cleanup(func() { closed(t, e) })
	return e
}

// startMembers starts an etcd of so many members and connects to it.
func startMembers(t *testing.T, n int, quota int64) (*storetest.Members, *Etcd) {
	t.Helper()
	m := must(storetest.Start(t.TempDir(), n, quota))
	t.Cleanup(m.Stop)
	e := must(Dial(External{Endpoints: m.Endpoints}))
	t.Cleanup(func() { closed(t, e) })
	return m, e
}

func closed(t *testing.T, b Backend) {
	t.Helper()
	isError(t, "the end of a store", b.Close(), nil)
}

func restored(t *testing.T, b Backend) Backend {
	t.Helper()
	file, dir := filepath.Join(t.TempDir(), "snapshot"), t.TempDir()
	e := b.(*Etcd)
	from := External{Endpoints: e.client.Endpoints()}
	if e.server != nil {
		from = LocalEndpoint(filepath.Dir(e.lock.Name()))
	}
	must(0, Backup(t.Context(), from, file))
	must(0, Restore(file, dir))
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
	must(0, err)
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
		"reads": reads, "many keys at one revision": manyKeys,
		"what is written is read": readsWritten, "commits": commits,
		"one winner": oneWinner, "scans": scans, "follows": follows, "resumes": resumes,
		"nothing changes": nothingChanges, "large transactions": largeTransactions,
		"a change that is heard of is read": readsHeard,
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
	var writes []Write
	for i := 0; i < len(pairs); i += 2 {
		writes = append(writes, Write{Key: pairs[i], Value: []byte(pairs[i+1])})
	}
	return write(t, b, writes...)
}

func write(t *testing.T, b Backend, writes ...Write) int64 {
	return must(b.Commit(t.Context(), nil, writes))
}

// values reads keys; absent ones are "-".
func values(t *testing.T, b Backend, keys ...string) []string {
	got, _, err := b.Read(t.Context(), keys...)
	must(0, err)
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
