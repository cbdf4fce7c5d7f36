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

// run runs a command line, and returns its output.
func run(t *testing.T, args ...string) (string, error) {
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
	settings := filepath.Join(dir, "settings.json")
	text := must(json.Marshal(map[string]any{
		"publicURL": "https://provider.example", "dataDir": filepath.Join(dir, "data"),
		"keysFile": filepath.Join(dir, "keys.json"), "tenantId": "t",
		"armListen": map[string]any{
			"address": "127.0.0.1:0", "certFile": "c", "keyFile": "k", "clientCAFile": "a",
			"clientNames": []string{"arm"},
		},
		"blob": map[string]any{
			"containerURL": "https://a.example/c", "account": "a", "accountKeyFile": "k",
		},
	}))
	must(0, os.WriteFile(settings, text, 0o600))
	return settings
}

// A key is replaced in the order of the help, beside a running store; dropping a key that is still
// needed is refused.
func TestKeys(t *testing.T) {
	dir := t.TempDir()
	file, settings := filepath.Join(dir, "keys.json"), settingsIn(t, dir)
	expect := func(want string, args ...string) {
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
	expect("made", "init", file)
	refused("keys add", "init", file)
	backend := must(store.Open(t.Context(), filepath.Join(dir, "data"), store.Options{}))
	defer backend.Close()
	st := store.New(backend)
	ring := must(seal.Load(file))
	box := ring.Seal("secrets/n", []byte("x"))
	must(st.Update(t.Context(), "", nil, func(v *store.View) error {
		return st.Secrets.Put(v, "n", store.Sealed{Box: box})
	}))
	refused("run `flexnode-rp serve` first", "status")
	must(0, st.BeginSchema(t.Context()))
	expect(ring.Keys[0].ID+"  1 boxes  seals and signs", "status")
	runs := func(keys ...string) {
		lease := must(st.Lease(t.Context(), store.MemberTTL))
		p := store.Process{Role: "front", Version: "1", Keys: keys}
		must(st.Update(t.Context(), "", nil, func(v *store.View) error {
			return st.Processes.Lease(v, "a", p, lease)
		}))
	}
	for _, change := range []string{"promote", "drop"} {
		refused("no process of the provider has a row in the store", change, file)
	}
	runs(ring.Keys[0].ID)
	refused("it has only one", "promote", file)
	expect("added; "+ring.Keys[0].ID+" seals", "add", file)
	now := must(seal.Load(file))
	was, next := now.Keys[0].ID, now.Keys[1].ID
	runs(was)
	refused("since it changed: a (front, 1)", "promote", file)
	runs(was, next)
	expect("promoted", "promote", file)
	expect("a  front 1  "+was+" "+next, "status")
	expect(ring.Keys[0].ID+"  1 boxes  opens", "status")
	refused("since it changed: a (front, 1)", "drop", file)
	runs(next, was)
	refused("run `keys rewrap` first", "drop", file)
	expect("1 boxes sealed again", "rewrap")
	expect("0 boxes sealed again", "rewrap")
	expect("is the only one", "drop", file)
	now = must(seal.Load(file))
	if len(now.Keys) != 1 || now.Keys[0].ID == ring.Keys[0].ID {
		t.Errorf("the file has %d keys", len(now.Keys))
	}
	expect(now.Keys[0].ID+"  1 boxes  seals and signs", "status")
}

// A misspelt command fails; without one, a group shows its commands.
func TestUnknownCommand(t *testing.T) {
	for _, args := range [][]string{
		{"epoch", "rise"}, {"keys", "rotate", "x"}, {"store", "dearm"}, {"cluster", "prepar", "--yes"},
	} {
		out, err := run(t, args...)
		if err == nil || !strings.Contains(err.Error(), "unknown command") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
		if out, err = run(t, args[0]); err != nil || !strings.Contains(out, "Available Commands") {
			t.Errorf("%s: %v\n%s", args[0], err, out)
		}
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
