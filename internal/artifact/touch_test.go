package artifact

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// fuse stops the caller of the n-th touch of the store, for ever, as SIGKILL would: nothing after
// that is executed, not even what is deferred. It counts the touches.
type fuse struct {
	n, left int64
	burnt   chan struct{}
}

func newFuse(left int64) *fuse { return &fuse{left: left, burnt: make(chan struct{})} }

func (f *fuse) touch(string) (done func(), err error) {
	if n := atomic.AddInt64(&f.n, 1); f.left > 0 && n >= f.left {
		if n == f.left {
			close(f.burnt)
		}
		select {}
	}
	return func() {}, nil
}

// Killed before each of its changes of the store, a run leaves nothing that the next one takes for
// an entry, and the next one finishes; Collect then leaves nothing but the entry.
func TestKilledAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a run for each write takes long; make test has it")
	}
	archived, targz, _ := archive(t)
	b := noise(1, 200_000)
	plain := binary(Kubelet, b)
	source := Source{Directory: t.TempDir()}
	for path, content := range map[string][]byte{
		"upstream/v1.2.3/containerd.tar.gz": targz, "upstream/v1.2.3/kubelet": b} {
		path = filepath.Join(source.Directory, path)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, content, 0o644))
	}
	tests := []struct {
		name string
		art  Artifact
		heal bool // an entry with other files is there, and is to be fetched again
	}{
		{"a binary", plain, false}, {"an archive", archived, false},
		{"a damaged archive", archived, true},
	}
	for _, tt := range tests {
		prepared := func() string {
			store := t.TempDir()
			if tt.heal {
				populate(t, store, tt.art.ID+"/bin/containerd", tt.art.ID+"/more/file")
			}
			return store
		}
		fetch := func(store string, touch Touch) error {
			f := &Fetcher{Store: store, Artifacts: []Artifact{tt.art}, Source: source, Touch: touch}
			if tt.heal {
				f.Heal = []string{tt.art.ID}
			}
			return run(t.Context(), f)
		}
		counter := newFuse(0)
		must(t, fetch(prepared(), counter.touch))
		if counter.n < 4 {
			t.Fatalf("%s: only %d touches: the fuse sees too little", tt.name, counter.n)
		}
		for n := int64(1); n <= counter.n; n++ {
			store, f := prepared(), newFuse(n)
			go fetch(store, f.touch)
			<-f.burnt
			if !tt.heal && present(store, tt.art.ID) && !sound(t, store, tt.art.ID) {
				t.Errorf("%s, killed at %d: the entry is damaged", tt.name, n)
			}
			if tt.heal && !present(store, tt.art.ID) {
				t.Errorf("%s, killed at %d: there is no entry any more", tt.name, n)
			}
			must(t, fetch(store, nil))
			if err := Collect(store, []string{tt.art.ID}, nil); err != nil {
				t.Error(err)
			}
			if left := listing(t, store); len(left) != 1 || !sound(t, store, tt.art.ID) {
				t.Errorf("%s, killed at %d of %d, then run again: %v", tt.name, n, counter.n, left)
			}
		}
	}
}

// Killed before each of its removals, Collect leaves whole entries only, and finishes when it is
// run again.
func TestCollectKilledAnywhere(t *testing.T) {
	keep, old := sha([]byte("keep")), sha([]byte("old"))
	prepared := func() string {
		store := t.TempDir()
		populate(t, store, keep+"/kubelet", old+"/bin/a", old+"/bin/b", keptPrefix+old)
		return store
	}
	counter := newFuse(0)
	if err := Collect(prepared(), []string{keep}, counter.touch); err != nil || counter.n < 6 {
		t.Fatalf("%v, %d touches", err, counter.n)
	}
	for n := int64(1); n <= counter.n; n++ {
		store, f := prepared(), newFuse(n)
		go Collect(store, []string{keep}, f.touch)
		<-f.burnt
		if present(store, old) && len(files(t, store, old)) != 2 {
			t.Errorf("killed at %d, half an entry is left", n)
		}
		if err := Collect(store, []string{keep}, nil); err != nil {
			t.Error(err)
		}
		if left := listing(t, store); len(left) != 1 || left[0] != keep {
			t.Errorf("killed at %d: left %v", n, left)
		}
	}
}

// A touch that fails keeps the change from being made, and ends the artifact as a fault of this
// machine.
func TestTouchRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := noise(1, 1000)
		r := newRig(t, nil, map[string]http.HandlerFunc{"upstream": serve(b, "")})
		refused := errors.New("not now")
		r.Touch = func(string) (func(), error) { return nil, refused }
		err := r.Run(t.Context(), []Artifact{binary(Kubelet, b)})
		e := new(Error)
		if !errors.Is(err, refused) || !errors.As(err, &e) || !e.Local() ||
			!strings.Contains(err.Error(), "cannot get kubelet 1.2.3") {
			t.Errorf("%v", err)
		}
		if left := listing(t, r.Store); len(left) != 0 {
			t.Errorf("the store was changed: %v", left)
		}
		populate(t, r.Store, sha([]byte("old"))+"/file")
		err = Collect(r.Store, nil, r.Touch)
		if !errors.Is(err, refused) || len(listing(t, r.Store)) != 1 {
			t.Errorf("collected: %v", err)
		}
	})
}
