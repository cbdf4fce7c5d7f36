package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// An etcd that was restored by its own tools gets a new epoch.
func TestRaiseTheEpoch(t *testing.T) {
	dir := t.TempDir()
	e, err := store.Open(t.Context(), dir, store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	settings, keys := settingsFor(t, dir), filepath.Join(t.TempDir(), "keys.json")
	text, err := os.ReadFile(settings)
	if err != nil {
		t.Fatal(err)
	}
	text, err = json.Marshal(json.RawMessage(bytes.ReplaceAll(text, []byte(`"keys.json"`),
		[]byte(`"`+keys+`"`))))
	if err == nil {
		err = os.WriteFile(settings, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		var out bytes.Buffer
		root := newRoot()
		root.SetOut(&out)
		root.SetArgs(append([]string{"--settings", settings}, args...))
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	run("keys", "init", keys)
	for _, want := range []string{"epoch 2 ", "epoch 3 "} {
		if got := run("epoch", "raise"); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
