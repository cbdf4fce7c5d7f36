package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// An etcd that was restored by its own tools is told so: each time begins a new epoch.
func TestRaiseEpoch(t *testing.T) {
	dir := t.TempDir()
	settings := settingsIn(t, dir)
	backend, err := store.Open(t.Context(), filepath.Join(dir, "data"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	for _, want := range []string{"2", "3"} {
		out, err := run(t, "--settings", settings, "store", "raise-epoch")
		if err != nil || !strings.Contains(out, "new epoch") {
			t.Errorf("%q, %v", out, err)
		}
		row, err := store.New(backend).Meta.Get(t.Context(), "epoch")
		if err != nil || string(row.Value) != want {
			t.Errorf("the epoch is %s, want %s: %v", row.Value, want, err)
		}
	}
}
