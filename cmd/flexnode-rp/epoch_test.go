package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// An etcd that was restored by its own tools gets a new epoch, each time.
func TestRaiseTheEpoch(t *testing.T) {
	dir := t.TempDir()
	settings := settingsIn(t, dir)
	e, err := store.Open(t.Context(), filepath.Join(dir, "data"), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	if out, err := run(t, "keys", "init", filepath.Join(dir, "keys.json")); err != nil {
		t.Fatal(out, err)
	}
	if err := store.New(e).BeginSchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"epoch 2 ", "epoch 3 "} {
		out, err := run(t, "--settings", settings, "epoch", "raise")
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%q, %v; want %q", out, err, want)
		}
	}
}
