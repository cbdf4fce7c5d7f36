package main

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// A store that is full takes writes again after what its help says was done, beside the program
// that has it open.
func TestMakeRoom(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	e, err := store.Open(ctx, filepath.Join(dir, "data"),
		store.Options{Quota: 2 << 20, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	settings := settingsIn(t, dir)
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		root := newRoot()
		root.SetOut(&out)
		root.SetArgs(append([]string{"--settings", settings, "store"}, args...))
		err := root.ExecuteContext(ctx)
		return out.String(), err
	}
	expect := func(want string, args ...string) {
		t.Helper()
		if text, err := run(args...); err != nil || !strings.Contains(text, want) {
			t.Errorf("%v: %s, %v; want %q", args, text, err, want)
		}
	}
	expect("leader", "status")
	// etcd measures its size after 10,000 writes at the latest.
	for i := 0; err == nil && i < 10_100; i++ {
		_, err = e.Commit(ctx, nil, []store.Write{{Key: "a", Value: make([]byte, 64<<10)}})
	}
	if !errors.Is(err, store.ErrFull) {
		t.Fatal(err)
	}
	if text, err := run("status"); err == nil ||
		!strings.Contains(text, "full: it refuses writes") {
		t.Errorf("the status of a full store: %s, %v", text, err)
	}
	expect("is forgotten", "compact")
	expect("answers nobody while", "defragment")
	expect("takes writes", "disarm")
	expect("ok", "status")
	if _, err := e.Commit(ctx, nil, []store.Write{{Key: "a", Value: []byte("1")}}); err != nil {
		t.Errorf("it still refuses writes: %v", err)
	}
}
