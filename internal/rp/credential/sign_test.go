package credential

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/rptest"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/signing/rootkey"
)

// offered returns the bundle that the agent of the node is offered.
func (w *world) offered() ([]byte, error) {
	answer, err := w.service.Refresh(w.t.Context(), get(w, w.store().Nodes, nodeKey),
		api.Refresh{Joined: true}, func(string) bool { return true })
	return answer.Bundle, err
}

// trusts returns the epoch of the bundle that an agent that trusts a root accepts; 0 for none.
func (w *world) trusts(root []byte) int64 {
	w.t.Helper()
	_, from, err := follow.Verify(must(w.offered()), root)
	if _, untrusted := errors.AsType[*follow.UntrustedError](err); err != nil && !untrusted {
		w.t.Fatal(err)
	}
	if err != nil {
		return 0
	}
	return from.Epoch
}

// tamper replaces a text in the row of the node's revisions, like a thief of the store.
func (w *world) tamper(old, replacement string) {
	w.t.Helper()
	edit(w, w.store().History, nodeKey, func(h *flexnode.History) {
		row := must(h.Row())
		changed := bytes.ReplaceAll(row, []byte(old), []byte(replacement))
		if bytes.Equal(row, changed) {
			w.t.Fatalf("there is no %s in %s", old, row)
		}
		*h = flexnode.History{}
		must(0, h.ReadRow(changed))
	})
}

func (w *world) raiseEpoch() {
	w.change(func(v *store.View) error { _, err := w.store().RaiseEpoch(v); return err })
}

func (w *world) signAgain(accept bool) (int, error) {
	return SignAgain(w.t.Context(), w.store(), w.keys, w.clock.Now(), accept)
}

// signsNothing checks that rows that should be signed again are an error, and stay as they are.
func (w *world) signsNothing(what string) {
	w.t.Helper()
	if n, err := w.signAgain(false); n != 0 || err == nil {
		w.t.Errorf("%s: %d rows were signed again: %v", what, n, err)
	}
}

// An agent accepts the provider's configuration, from a URL or later, and nothing that was changed
// in the store: neither the revision, nor its shared layers, nor its epoch.
func TestChangedRowsAreNotTrusted(t *testing.T) {
	w := live(t)
	_, text := w.get(w.url())
	joining := config.JoiningOf([]byte(text))
	if _, _, err := follow.Verify([]byte(text), joining.Root); err != nil ||
		!bytes.Equal(joining.Root, w.keys.Root) {
		t.Fatalf("the bundle of the URL: %v", err)
	}
	equal(t, "the epoch in which the node trusts what it is offered", w.trusts(joining.Root), 1)
	equal(t, "under the root of another installation", w.trusts(rptest.Ring().Root), 0)
	w.tamper(`"maxPods":40`, `"maxPods":41`)
	equal(t, "a changed revision", w.trusts(joining.Root), 0)
	w.tamper(`"maxPods":41`, `"maxPods":40`)
	w.tamper(`"epoch":1`, `"epoch":2`)
	equal(t, "a revision in another epoch", w.trusts(joining.Root), 0)
	w.tamper(`"epoch":2`, `"epoch":1`)
	equal(t, "the row as it was", w.trusts(joining.Root), 1)
	facts := w.node().Facts
	w.change(func(v *store.View) error {
		text := w.store().Layers.Row(v, facts).Value
		return w.store().Layers.Put(v, facts, bytes.ReplaceAll(text, []byte("factory.example"),
			[]byte("another.example")))
	})
	w.restart(w.keys) // which keeps no layers
	if _, err := w.offered(); err == nil || !strings.Contains(err.Error(), "is stored is another") {
		t.Errorf("changed facts: %v", err)
	}
}

// The provider does not sign content that another program has written to its store.
func TestChangedRowsAreNotSigned(t *testing.T) {
	w := live(t)
	repeat := func() error {
		_, err := w.store().Update(t.Context(), "", nil, func(v *store.View) error {
			from := must(w.store().History.Row(v, nodeKey).Value.Find(w.node().Revision))
			next := *from
			next.Version++
			return w.service.Sign(v, w.node().UID, &next, from)
		})
		return err
	}
	must(0, repeat())
	w.tamper(`"maxPods":40`, `"maxPods":41`)
	if err := repeat(); err == nil || !strings.Contains(err.Error(), "cannot sign") {
		t.Errorf("repeated: %v", err)
	}
	w.raiseEpoch()
	w.signsNothing("a changed row")
	w.tamper(`"signed"`, `"stripped"`)
	w.signsNothing("a row without a signature")
	equal(t, "a changed revision", w.trusts(w.keys.Root), 0)
}

// A key that cannot sign changes no row.
func TestUnusableKeySignsNothing(t *testing.T) {
	w := live(t)
	w.raiseEpoch()
	w.keys.Keys = slices.Clone(w.keys.Keys)
	w.keys.Keys[0].Signing = []byte("no key")
	w.signsNothing("with an unusable key")
	equal(t, "the epoch in which the node trusts what it is offered", w.trusts(w.keys.Root), 1)
}

// In a new epoch, and with another key, everything is signed again once, and no ETag changes.
func TestSignAgain(t *testing.T) {
	w := live(t)
	etag, root := w.node().ETag(), must(rootkey.NewRoot(w.clock.Now()))
	w.restart(must(seal.NewRing(root, w.clock.Now())))
	equal(t, "the rows whose keys were lost", must(w.signAgain(true)), 1)
	again := func(what string, epoch int64, rows int) {
		t.Helper()
		equal(t, "rows that are signed again: "+what, must(w.signAgain(false)), rows)
		equal(t, what+", a second time", must(w.signAgain(false)), 0)
		equal(t, what, w.trusts(root.Certificate()), epoch)
	}
	again("nothing has changed", 1, 0)
	w.raiseEpoch()
	equal(t, "before it is signed again", w.trusts(root.Certificate()), 1)
	again("a new epoch", 2, 1)
	next, old := must(seal.NewRing(root, w.clock.Now())), w.keys
	maps.Copy(next.Certificates, old.Certificates)
	next.Keys = append(next.Keys, old.Keys...)
	w.restart(next) // after `keys promote`
	again("another key", 2, 1)
	w.restart(old) // a replica that has not read the file yet
	w.change(func(v *store.View) error {
		row := w.store().History.Row(v, nodeKey)
		signed, _, err := row.Value.Sign(func(r flexnode.Revision) *flexnode.Signed {
			must(0, w.service.Sign(v, w.node().UID, &r, nil))
			return r.Signed
		})
		return errors.Join(err, w.store().History.Put(v, nodeKey, signed))
	})
	w.restart(next)
	_, _ = Rewrap(t.Context(), w.store(), next) // the keys of the boxes were lost
	again("a key that another replica has used since", 2, 1)
	next.Keys = next.Keys[:1]
	w.restart(next) // after `keys drop`
	again("the former key was dropped", 2, 0)
	equal(t, "the ETag", w.node().ETag(), etag)
}

// A tombstone is signed, and signed again; members that a newer program has added are preserved.
func TestSignedTombstones(t *testing.T) {
	w := live(t)
	n := w.node()
	w.clock.Pass(123456789) // rows have seconds
	must(0, w.delete())
	verified := func(epoch int64) {
		t.Helper()
		stone, _, err := get(w, w.store().Tombstones, nodeKey).Value.Of(n.UID)
		must(0, err)
		said := tombstone(stone)
		said.Epoch, said.Time = stone.Signed.Epoch, time.Unix(stone.Signed.Time, 0)
		must(0, w.keys.Verify(stone.Signed.Key, stone.Signed.Signature, said))
		equal(t, "the epoch of the tombstone", stone.Signed.Epoch, epoch)
	}
	verified(1)
	replace := func(old, replacement string) {
		edit(w, w.store().Tombstones, nodeKey, func(all *flexnode.Tombstones) {
			all.Stored[0] = bytes.Replace(all.Stored[0], []byte(old), []byte(replacement), 1)
		})
	}
	replace("{", `{"later":1,`)
	w.raiseEpoch()
	equal(t, "rows that are signed again", must(w.signAgain(false)), 1)
	verified(2)
	stored := get(w, w.store().Tombstones, nodeKey).Value.Stored[0]
	if !strings.Contains(string(stored), `"later":1`) {
		t.Errorf("it is %s", stored)
	}
	replace(n.UID, "another")
	w.raiseEpoch()
	w.signsNothing("a changed tombstone")
}
