package store

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
	"golang.org/x/sys/unix"

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

// startMembers starts an etcd of so many members, which do not wait for the disk, and connects to
// it. Each function of stop stops a member.
func startMembers(t *testing.T, n int, quota int64) (stop []func(), e *Etcd) {
	t.Helper()
	var configs []*embed.Config
	var initial, endpoints []string
	var members []*embed.Etcd
	for i := range n {
		c := embed.NewConfig()
		c.Name, c.Dir = fmt.Sprint("m", i), t.TempDir()
		peer, client := unusedURL(), unusedURL()
		c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
		c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
		c.QuotaBackendBytes, c.UnsafeNoFsync = quota, true
		c.LogOutputs, c.LogLevel = []string{os.DevNull}, "error"
		configs, initial = append(configs, c), append(initial, c.Name+"="+peer.String())
		endpoints = append(endpoints, client.String())
	}
	for _, c := range configs {
		c.InitialCluster = strings.Join(initial, ",")
		member, err := embed.StartEtcd(c)
		if errors.Is(err, unix.EADDRINUSE) { // another process was faster
			return startMembers(t, n, quota)
		}
		members = append(members, must(member, err))
		stop = append(stop, sync.OnceFunc(member.Close))
		t.Cleanup(stop[len(stop)-1])
	}
	for _, member := range members {
		<-member.Server.ReadyNotify()
	}
	e = must(Dial(External{Endpoints: endpoints}))
	t.Cleanup(func() { closed(t, e) })
	return stop, e
}

// unusedURL returns an address on loopback without a listener.
func unusedURL() url.URL {
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	return url.URL{Scheme: "http", Host: l.Addr().String()}
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
	err = errors.Join(err, e.Defragment(t.Context(), func(EtcdMember, bool) {}), e.Disarm(t.Context()))
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
