package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	"github.com/Azure/AKSFlexNode/internal/rp/service"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// backedUp is a store that is backed up while it is open.
type backedUp struct {
	t             *testing.T
	dir, settings string
	backend       *store.Etcd
	st            *store.Store
}

func newBackedUp(t *testing.T) *backedUp {
	dir := t.TempDir()
	b := &backedUp{t: t, dir: dir, settings: settingsIn(t, dir)}
	keys := filepath.Join(dir, "keys.json")
	ring := must(seal.Init(keys, seal.RootFile(keys), time.Now()))
	b.backend = must(store.Open(t.Context(), filepath.Join(dir, "data"), store.Options{NoSync: true}))
	t.Cleanup(func() { _ = b.backend.Close() })
	b.st = store.New(b.backend)
	must(0, b.st.BeginSchema(t.Context()))
	box := ring.Seal("secrets/s/g/c/n", []byte("hush-hush"))
	must(b.st.Update(t.Context(), "", nil, func(v *store.View) error {
		return errors.Join(b.st.Secrets.Put(v, "s/g/c/n", store.Sealed{Box: box}),
			b.st.Nodes.Put(v, "s/g/c/n", flexnode.Node{ID: "/n", UID: "u"}))
	}))
	return b
}

// take takes a backup with a name and returns its path.
func (b *backedUp) take(name string) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	must(run(b.t, "--settings", b.settings, "backup", path))
	return path
}

// verify verifies a backup and checks the exit code, and the problem if that is 2.
func (b *backedUp) verify(path string, exit int, problem string) service.Verified {
	b.t.Helper()
	out, err := run(b.t, "--settings", b.settings, "backup", "--verify", path)
	var found service.Verified
	if json.Unmarshal([]byte(out), &found) != nil && exit != 1 {
		b.t.Fatalf("%s: %v: %s", path, err, out)
	}
	has := func(s string) bool { return strings.Contains(s, problem) }
	if exitCode(err) != exit || found.Valid != (exit == 0) ||
		exit == 2 && !slices.ContainsFunc(found.Problems, has) {
		b.t.Errorf("%s: %v, %s; want the exit code %d and %q", filepath.Base(path), err, out, exit,
			problem)
	}
	if strings.Contains(out, "hush-hush") {
		b.t.Errorf("a secret is shown: %s", out)
	}
	return found
}

// put writes a row unchanged.
func (b *backedUp) put(key, value string) {
	must(b.backend.Commit(b.t.Context(), nil, []store.Write{{Key: key, Value: []byte(value)}}))
}

// damage verifies an altered copy of a backup, and checks the problem.
func (b *backedUp) damage(path, problem string, alter func([]byte) []byte) {
	b.t.Helper()
	to := filepath.Join(b.dir, "damaged")
	must(0, os.WriteFile(to, alter(must(os.ReadFile(path))), 0o600))
	b.verify(to, 2, problem)
}

// A usable backup is distinguished from an unusable one, with the reason.
func TestBackupIsVerified(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	b := newBackedUp(t)
	good := b.take("good")
	found := b.verify(good, 0, "")
	if found.Rows["nodes"] != 1 || found.Rows["secrets"] != 1 || found.Schema == 0 ||
		found.Epoch != 1 || len(found.Boxes) != 1 || found.SHA256 == "" || found.Bytes == 0 {
		t.Errorf("%+v", found)
	}
	b.verify(filepath.Join(b.dir, "none"), 2, "no such file")
	b.damage(good, "is empty", func([]byte) []byte { return nil })
	b.damage(good, "is not a snapshot", func([]byte) []byte { return []byte("hello") })
	b.damage(good, "is truncated", func(d []byte) []byte { return d[:len(d)-100] })
	b.damage(good, "damaged or was changed", func(d []byte) []byte { return d[:len(d)-4096] })
	b.damage(good, "damaged or was changed", func(d []byte) []byte { d[len(d)/2] ^= 1; return d })

	keys := filepath.Join(b.dir, "keys.json")
	kept := must(os.ReadFile(keys))
	must(0, os.Remove(keys))
	b.verify(good, 1, "")
	must(seal.Init(keys, seal.RootFile(keys), time.Now()))
	b.verify(good, 2, "it is not in the ring")
	must(0, os.WriteFile(keys, kept, 0o600))

	b.put(b.st.Nodes.Key("s/g/c/broken"), `{"id":`)
	b.verify(b.take("row"), 2, "cannot read the stored row")
	b.put(b.st.Nodes.Key("s/g/c/broken"), `{}`)
	secret := must(b.st.Secrets.Get(t.Context(), "s/g/c/n"))
	secret.Value.Box.Data[0] ^= 1
	changed := must(json.Marshal(secret.Value))
	b.put(b.st.Secrets.Key("s/g/c/n"), string(changed))
	b.verify(b.take("secret"), 2, "cannot open what is sealed for secrets/s/g/c/n")
	b.put(b.st.Meta.Key("schema"), "999")
	b.verify(b.take("newer"), 2, "run a newer flexnode-rp")
	if left := must(os.ReadDir(temporary)); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	t.Setenv("TMPDIR", filepath.Join(temporary, "none")) // the backup is not to blame
	b.verify(good, 1, "")
}

// An etcd that its own tools have restored gets a new epoch, each time.
func TestRaiseTheEpoch(t *testing.T) {
	b := newBackedUp(t)
	for _, want := range []string{"epoch 2 ", "epoch 3 "} {
		cli{t, nil}.says(want, "--settings", b.settings, "epoch", "raise")
	}
}
