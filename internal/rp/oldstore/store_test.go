package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
)

// The same suite on an etcd in the process and on a cluster of three.
func TestEmbedded(t *testing.T) { conform(t, embedded(t)) }

func TestThreeMembers(t *testing.T) {
	client, err := External{Endpoints: members(t)}.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	conform(t, New(client))
}

func embedded(t *testing.T) *Store {
	t.Helper()
	e, err := Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return New(e.Client())
}

// members starts an etcd of three members on loopback and returns their endpoints.
func members(t *testing.T) []string {
	t.Helper()
	return start(t, 3, 0)
}

// start starts an etcd of so many members, each with a quota in bytes, or etcd's own for 0.
func start(t *testing.T, size int, quota int64) []string {
	t.Helper()
	port := func() url.URL {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return url.URL{Scheme: "http", Host: l.Addr().String()}
	}
	var configs []*embed.Config
	var initial, endpoints []string
	for i := range size {
		c := embed.NewConfig()
		c.QuotaBackendBytes = quota
		c.Name, c.Dir = fmt.Sprintf("m%d", i), filepath.Join(t.TempDir(), "etcd")
		peer, client := port(), port()
		c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
		c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
		c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
		c.LogLevel, c.UnsafeNoFsync = "error", true
		configs, initial, endpoints = append(configs, c), append(initial, c.Name+"="+peer.String()), append(endpoints, client.String())
	}
	for _, c := range configs {
		c.InitialCluster = strings.Join(initial, ",")
		server, err := embed.StartEtcd(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Close)
	}
	return endpoints
}

func conform(t *testing.T, s *Store) {
	t.Run("rows", func(t *testing.T) { rows(t, s) })
	t.Run("several rows or none", func(t *testing.T) { together(t, s) })
	t.Run("one winner", func(t *testing.T) { race(t, s) })
	t.Run("index", func(t *testing.T) { follows(t, s) })
}

func commit(t *testing.T, txn *Txn) int64 {
	t.Helper()
	rev, err := txn.Commit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func rows(t *testing.T, s *Store) {
	ctx := t.Context()
	none, err := s.Nodes.Get(ctx, "s/g/c/a")
	if err != nil || none.Exists() {
		t.Fatalf("%+v, %v; want a row that is not there", none, err)
	}
	txn := s.Txn()
	want := Node{ID: "/A", Version: "1", Desired: api.Desired{NodeConfig: api.NodeConfig{MaxPods: 7}}}
	s.Nodes.Put(txn, none, want)
	rev := commit(t, txn)
	got, err := s.Nodes.Get(ctx, "s/g/c/a")
	if err != nil || got.Revision != rev {
		t.Fatalf("revision %d, %v; want %d", got.Revision, err, rev)
	}
	if diff := cmp.Diff(want, got.Value); diff != "" {
		t.Error(diff)
	}
	txn = s.Txn()
	s.Nodes.Put(txn, none, want)
	if _, err := txn.Commit(ctx); !errors.Is(err, ErrConflict) {
		t.Errorf("a second creation: %v, want a conflict", err)
	}
	for i := range 2500 {
		txn := s.Txn()
		s.PodCIDRs.Set(txn, fmt.Sprintf("s/g/c/%06d", i), "x")
		commit(t, txn)
	}
	all, err := s.PodCIDRs.List(ctx, "s/g/c/")
	if err != nil || len(all) != 2500 || all[0].Key != "s/g/c/000000" || all[2499].Key != "s/g/c/002499" {
		t.Errorf("%d rows, %v", len(all), err)
	}
	txn = s.Txn()
	s.Nodes.Delete(txn, got)
	commit(t, txn)
	if gone, err := s.Nodes.Get(ctx, "s/g/c/a"); err != nil || gone.Exists() {
		t.Errorf("after its delete: %+v, %v", gone, err)
	}
}

func together(t *testing.T, s *Store) {
	ctx := t.Context()
	node, err := s.Nodes.Get(ctx, "s/g/c/b")
	if err != nil {
		t.Fatal(err)
	}
	txn := s.Txn()
	s.Nodes.Put(txn, node, Node{Version: "1"})
	commit(t, txn)
	txn = s.Txn()
	s.Credentials.Set(txn, "cred", Credential{State: Pending})
	s.Nodes.Unchanged(txn, node) // which it is not
	if _, err := txn.Commit(ctx); !errors.Is(err, ErrConflict) {
		t.Fatalf("got %v, want a conflict", err)
	}
	if c, err := s.Credentials.Get(ctx, "cred"); err != nil || c.Exists() {
		t.Errorf("half of a transaction happened: %+v, %v", c, err)
	}
}

func race(t *testing.T, s *Store) {
	ctx := t.Context()
	const writers = 20
	var wg sync.WaitGroup
	won := make(chan int, writers)
	row, err := s.Clusters.Get(ctx, "s/g/race")
	if err != nil {
		t.Fatal(err)
	}
	for i := range writers {
		wg.Go(func() {
			txn := s.Txn()
			s.Clusters.Put(txn, row, Cluster{Location: fmt.Sprint(i)})
			if _, err := txn.Commit(ctx); err == nil {
				won <- i
			} else if !errors.Is(err, ErrConflict) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Fatalf("%d writers won", len(won))
	}
	after, err := s.Clusters.Get(ctx, "s/g/race")
	if i := <-won; err != nil || after.Value.Location != fmt.Sprint(i) {
		t.Errorf("%d won, but %+v is stored: %v", i, after, err)
	}
}

func follows(t *testing.T, s *Store) {
	ctx, cancel := context.WithCancel(t.Context())
	x := s.NewIndex()
	if err := x.Load(ctx); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.Follow(ctx, func(err error) { t.Log(err) })
	}()
	var rev int64
	for i := range 5 {
		txn := s.Txn()
		s.Nodes.Set(txn, fmt.Sprintf("s/g/idx/n%d", i), Node{Version: fmt.Sprint(i), Desired: api.Desired{AzureAuth: api.AzureAuth{ServicePrincipal: &api.ServicePrincipalAuth{ClientID: "APP"}}}})
		s.Nodes.Set(txn, fmt.Sprintf("s/g/idx2/n%d", i), Node{Version: "9"})
		rev = commit(t, txn)
	}
	until(t, func() bool { return x.Revision() >= rev })
	if p, ok := x.Poll("s/g/idx/n3"); !ok || p != (Poll{Version: "3", Agent: "app:app"}) {
		t.Errorf("poll: %+v, %v", p, ok)
	}
	first, more, err := x.Nodes("s/g/idx/", "", 3)
	if err != nil || !more || len(first) != 3 || first[2].Key != "s/g/idx/n2" {
		t.Errorf("first page: %+v, %v, %v", first, more, err)
	}
	rest, more, err := x.Nodes("s/g/idx/", first[2].Key, 3)
	if err != nil || more || len(rest) != 2 || rest[1].Key != "s/g/idx/n4" {
		t.Errorf("second page: %+v, %v, %v", rest, more, err)
	}
	txn := s.Txn()
	s.Nodes.Clear(txn, "s/g/idx/n3")
	rev = commit(t, txn)
	until(t, func() bool { return x.Revision() >= rev })
	if _, ok := x.Poll("s/g/idx/n3"); ok {
		t.Error("a deleted node is still in the index")
	}
	cancel()
	<-done
}

func until(t *testing.T, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen within 10 s")
		}
	}
}

func TestBackupAndRestore(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	e, err := Open(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	s := New(e.Client())
	txn := s.Txn()
	s.Nodes.Set(txn, "s/g/c/a", Node{Version: "42"})
	commit(t, txn)
	file := filepath.Join(t.TempDir(), "backup")
	if err := Backup(ctx, LocalEndpoint(dir), file); err != nil {
		t.Fatal(err)
	}
	if err := Backup(ctx, LocalEndpoint(dir), file); err == nil {
		t.Error("a backup was written over another")
	}
	if _, err := Open(ctx, dir); err == nil {
		t.Error("two programs opened one directory")
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if err := Restore(file, dir); err == nil {
		t.Error("a restore went over a store")
	}
	other := t.TempDir()
	if err := Restore(file, other); err != nil {
		t.Fatal(err)
	}
	e, err = Open(ctx, other)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if got, err := New(e.Client()).Nodes.Get(ctx, "s/g/c/a"); err != nil || got.Value.Version != "42" {
		t.Errorf("after a restore: %+v, %v", got, err)
	}
}

// A store that is full says so.
func TestFull(t *testing.T) {
	client, err := External{Endpoints: start(t, 1, 2<<20)}.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	s := New(client)
	if err := s.Alarm(t.Context()); err != nil {
		t.Errorf("an empty store: %v", err)
	}
	err = nil
	for i := 0; err == nil && i < 200; i++ {
		txn := s.Txn()
		s.Bundles.Set(txn, fmt.Sprint(i), Sealed{Box: seal.Box{Data: make([]byte, 64<<10)}})
		_, err = txn.Commit(t.Context())
	}
	if err == nil || errors.Is(err, ErrConflict) {
		t.Fatalf("a full store takes writes: %v", err)
	}
	if err := s.Alarm(t.Context()); err == nil || !strings.Contains(err.Error(), "NOSPACE") {
		t.Errorf("a full store: %v", err)
	}
	if size, err := s.Size(t.Context()); err != nil || size < 1<<20 {
		t.Errorf("its size is %d, %v", size, err)
	}
}
