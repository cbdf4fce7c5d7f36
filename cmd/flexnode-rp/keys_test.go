package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
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

// cli is the program with first arguments.
type cli struct {
	t    *testing.T
	args []string
}

func (c cli) run(args ...string) (string, error) { return run(c.t, slices.Concat(c.args, args)...) }

// says checks that a command succeeds, with a text in its output.
func (c cli) says(want string, args ...string) {
	c.t.Helper()
	if out, err := c.run(args...); err != nil || !strings.Contains(out, want) {
		c.t.Errorf("%v: %q, %v; want %q", args, out, err, want)
	}
}

// refuses checks that a command fails, with a text in its error.
func (c cli) refuses(want string, args ...string) {
	c.t.Helper()
	if out, err := c.run(args...); err == nil || !strings.Contains(err.Error(), want) {
		c.t.Errorf("%v: %q, %v; want the error %q", args, out, err, want)
	}
}

// settingsIn writes settings of a provider with an embedded store, and returns their path.
func settingsIn(t *testing.T, dir string) string {
	settings := filepath.Join(dir, "settings.json")
	text := must(json.Marshal(map[string]any{
		"publicURL": "https://provider.example", "dataDir": filepath.Join(dir, "data"),
		"keysFile": filepath.Join(dir, "keys.json"), "tenantId": "t",
		"armListen": map[string]any{"address": "127.0.0.1:0", "certFile": "c", "keyFile": "k",
			"clientCAFile": "a", "clientNames": []string{"arm"}},
		"blob": map[string]any{"containerURL": "https://a.example/c", "account": "a",
			"accountKeyFile": "k"},
	}))
	must(0, os.WriteFile(settings, text, 0o600))
	return settings
}

// A key is replaced in the order of the help, beside a running store; dropping a key that is still
// needed is refused.
func TestKeys(t *testing.T) {
	dir := t.TempDir()
	file, settings := filepath.Join(dir, "keys.json"), settingsIn(t, dir)
	keys := cli{t, []string{"--settings", settings, "keys"}}
	keys.says("made", "init", file)
	keys.refuses("keys add", "init", file)
	backend := must(store.Open(t.Context(), filepath.Join(dir, "data"), store.Options{}))
	defer backend.Close()
	st := store.New(backend)
	ring := must(seal.Load(file))
	box := ring.Seal("secrets/n", []byte("x"))
	must(st.Update(t.Context(), "", nil, func(v *store.View) error {
		return st.Secrets.Put(v, "n", store.Sealed{Box: box})
	}))
	keys.refuses("run `flexnode-rp serve` first", "status")
	must(0, st.BeginSchema(t.Context()))
	keys.says(ring.Keys[0].ID+"  1 boxes  seals and signs", "status")
	runs := func(known ...string) {
		lease := must(st.Lease(t.Context(), store.MemberTTL))
		p := store.Process{Role: "front", Version: "1", Keys: known}
		must(st.Update(t.Context(), "", nil, func(v *store.View) error {
			return st.Processes.Lease(v, "a", p, lease)
		}))
	}
	for _, change := range []string{"promote", "drop"} {
		keys.refuses("no process of the provider has a row in the store", change, file)
	}
	runs(ring.Keys[0].ID)
	keys.refuses("it has only one", "promote", file)
	keys.says("added; "+ring.Keys[0].ID+" seals", "add", file)
	now := must(seal.Load(file))
	was, next := now.Keys[0].ID, now.Keys[1].ID
	runs(was)
	keys.refuses("since it changed: a (front, 1)", "promote", file)
	runs(was, next)
	keys.says("promoted", "promote", file)
	keys.says("a  front 1  "+was+" "+next, "status")
	keys.says(ring.Keys[0].ID+"  1 boxes  opens", "status")
	keys.refuses("since it changed: a (front, 1)", "drop", file)
	runs(next, was)
	keys.refuses("run `keys rewrap` first", "drop", file)
	keys.says("1 boxes sealed again", "rewrap")
	keys.says("0 boxes sealed again", "rewrap")
	keys.says("is the only one", "drop", file)
	now = must(seal.Load(file))
	if len(now.Keys) != 1 || now.Keys[0].ID == ring.Keys[0].ID {
		t.Errorf("the file has %d keys", len(now.Keys))
	}
	keys.says(now.Keys[0].ID+"  1 boxes  seals and signs", "status")
}

// A misspelt command fails; without one, a group shows its commands.
func TestUnknownCommand(t *testing.T) {
	for _, args := range [][]string{
		{"epoch", "rise"}, {"keys", "rotate", "x"}, {"store", "dearm"}, {"cluster", "prepar", "--yes"},
	} {
		cli{t, args}.refuses("unknown command")
		cli{t, args[:1]}.says("Available Commands")
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
