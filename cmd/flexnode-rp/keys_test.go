package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// run is a command line; it returns what it has printed.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&out)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// settingsIn writes settings of a provider with an embedded store, and returns their path.
func settingsIn(t *testing.T, dir string) string {
	t.Helper()
	settings := filepath.Join(dir, "settings.json")
	text, err := json.Marshal(map[string]any{
		"publicURL": "https://provider.example", "dataDir": filepath.Join(dir, "data"),
		"keysFile": filepath.Join(dir, "keys.json"), "tenantId": "t",
		"armListen": map[string]any{
			"address": "127.0.0.1:0", "certFile": "c", "keyFile": "k", "clientCAFile": "a",
			"clientNames": []string{"arm"},
		},
		"blob": map[string]any{
			"containerURL": "https://a.example/c", "account": "a", "accountKeyFile": "k",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(settings, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return settings
}

// A key is replaced in the order that the help gives, beside a running store; dropping one that is
// needed is refused.
func TestKeys(t *testing.T) {
	dir := t.TempDir()
	file, settings := filepath.Join(dir, "keys.json"), settingsIn(t, dir)
	must := func(want string, args ...string) {
		t.Helper()
		out, err := run(t, append([]string{"--settings", settings, "keys"}, args...)...)
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%v: %q, %v; want %q", args, out, err, want)
		}
	}
	refused := func(want string, args ...string) {
		t.Helper()
		out, err := run(t, append([]string{"--settings", settings, "keys"}, args...)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %q, %v; want the error %q", args, out, err, want)
		}
	}
	must("made", "init", file)
	refused("keys add", "init", file)
	backend, err := store.Open(t.Context(), filepath.Join(dir, "data"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	st := store.New(backend)
	ring, err := seal.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	box, err := ring.Seal("secrets/n", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Update(t.Context(), "", nil, func(v *store.View) error {
		return st.Secrets.Put(v, "n", store.Sealed{Box: box})
	}); err != nil {
		t.Fatal(err)
	}
	refused("start `flexnode-rp serve` first", "status")
	if err := st.BeginSchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	must(ring.Keys[0].ID+"  1 boxes  seals and signs", "status")
	refused("there is one only", "promote", file)
	must("added; "+ring.Keys[0].ID+" seals", "add", file)
	now, err := seal.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	runs := func(keys ...string) {
		t.Helper()
		lease, err := st.Lease(t.Context(), store.MemberTTL)
		if err != nil {
			t.Fatal(err)
		}
		p := store.Process{Role: "front", Version: "1", Keys: keys}
		if _, err := st.Update(t.Context(), "", nil, func(v *store.View) error {
			return st.Processes.Lease(v, "a", p, lease)
		}); err != nil {
			t.Fatal(err)
		}
	}
	was, next := now.Keys[0].ID, now.Keys[1].ID
	runs(was)
	refused("since: a (front, 1)", "promote", file)
	runs(was, next)
	must("promoted", "promote", file)
	must("a  front 1  "+was+" "+next, "status")
	must(ring.Keys[0].ID+"  1 boxes  opens", "status")
	refused("since: a (front, 1)", "drop", file)
	runs(next, was)
	refused("run `keys rewrap` first", "drop", file)
	must("1 boxes are sealed again", "rewrap")
	must("0 boxes are sealed again", "rewrap")
	must("is the only one", "drop", file)
	now, err = seal.Load(file)
	if err != nil || len(now.Keys) != 1 || now.Keys[0].ID == ring.Keys[0].ID {
		t.Errorf("the file has %d keys, %v", len(now.Keys), err)
	}
	must(now.Keys[0].ID+"  1 boxes  seals and signs", "status")
}
