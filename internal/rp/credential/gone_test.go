package credential

import (
	"fmt"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/rptest"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// empty checks that nothing is left of credentials.
func (w *world) empty() {
	w.t.Helper()
	s := w.store()
	left := fmt.Sprint(list(w, s.Credentials), list(w, s.Tokens), list(w, s.Bundles))
	equal(w.t, "credentials, tokens and bundles that are left", left, "[] [] []")
}

// A cluster that is being deleted is cleaned if it answers. Otherwise attempts end after a while,
// and its credentials are removed without it. Attempts do not end for one that is not being
// deleted, until the token has expired.
func TestACredentialOfAClusterThatGoes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		goes, down, late, expires, leaves bool
	}{
		"it answers":                            {goes: true, late: true},
		"it does not answer":                    {goes: true, down: true, leaves: true},
		"its machines are given back slowly":    {goes: true, down: true, late: true, leaves: true},
		"it is not deleted":                     {down: true},
		"it is not deleted, and the token ends": {down: true, expires: true, leaves: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			must(0, created(w))
			if tt.down {
				w.cluster.down = errDown
			}
			if tt.goes {
				edit(w, w.store().Clusters, clusterKey, func(c *flexnode.Cluster) {
					c.Deletion = &flexnode.Deletion{Operation: "operation", Since: w.clock.Now()}
				})
			}
			if tt.late {
				w.clock.Pass(forsaken)
			}
			must(0, w.delete())
			tried := func() {
				t.Helper()
				w.tryOnce()
				equal(t, "credentials without an answer", len(list(w, w.store().Credentials)), 1)
			}
			if tt.down {
				tried()
				w.clock.Pass(forsaken)
			}
			if tt.expires {
				tried()
				w.clock.Pass(Lifetime)
			}
			if tt.down && !tt.leaves {
				tried()
				w.cluster.down = nil
			}
			w.work()
			w.empty()
			left := w.cluster.secrets
			told := strings.Contains(w.audit.String(), "left in a cluster")
			if told != tt.leaves || (len(left) > 0) != tt.leaves {
				t.Errorf("left are %v; in the audit log: %v", left, told)
			}
		})
	}
}

// ReleaseCluster deletes the credentials of a cluster, in each state, with their sealed
// configurations. Those of other clusters are kept.
func TestReleaseOfACluster(t *testing.T) {
	t.Parallel()
	for _, state := range []string{store.Pending, store.Live, store.Consumed, store.Revoking} {
		w := newWorld(t)
		must(0, created(w))
		key := w.node().Credential
		edit(w, w.store().Credentials, key, func(c *store.Credential) { c.State = state })
		must(w.store().ReleaseCluster(t.Context(), clusterKey+"2"))
		equal(t, "credentials of a registered cluster", len(list(w, w.store().Credentials)), 1)
		must(w.store().ReleaseCluster(t.Context(), clusterKey))
		w.empty()
	}
}

// After a restore, credentials that are usable according to the backup may have been used.
func TestAfterRestore(t *testing.T) {
	w, ctx := live(t), t.Context()
	url := w.url()
	must(0, w.service.AfterRestore(ctx))
	w.answers("without a restore", url, 200)
	w.start(w.memory.Copy())
	w.raiseEpoch()
	must(SignAgain(ctx, w.store(), w.keys, w.clock.Now(), false))
	must(0, w.service.AfterRestore(ctx))
	w.answers("a URL from before the restore", url, 403)
	equal(t, "an enrolment secret from before the restore", w.node().Enrolment, "")
	w.work()
	equal(t, "tokens from before the restore", len(w.cluster.secrets), 0)
	must(0, w.regenerate())
	w.work()
	fresh := w.url()
	must(0, w.service.AfterRestore(ctx)) // the next replica, or the next start
	status, text := w.get(fresh)
	equal(t, "a URL of after the restore", status, 200)
	_, from := bundle(t, text)
	equal(t, "the epoch of the bundle", from.Epoch, 2)
	w.consistent([]string{url, fresh})
}

// A node that waited for a credential at the time of the backup does not wait for ever.
func TestAfterRestoreOfAPendingOne(t *testing.T) {
	w := beside(t)
	must(0, w.put(withToken, true, true))
	w.raiseEpoch()
	must(0, w.service.AfterRestore(t.Context()))
	w.work()
	if n := w.node(); n.State != "" || !strings.Contains(n.Reason, revokedWhy) || n.Credential != "" {
		t.Errorf("%+v", n)
	}
	w.empty()
}

// Keys are replaced, and everything can be read at any time; the older key is needed until
// everything was sealed again, including concurrent changes.
func TestRewrap(t *testing.T) {
	w, ctx := beside(t), t.Context()
	w.joins(false)
	url, key := w.url(), w.node().Credential
	_, before := w.get(url)
	old, fresh := w.keys.Keys[0], rptest.Ring().Keys[0]
	w.restart(seal.Ring{Keys: []seal.Key{fresh, old}}) // after `keys promote`
	_, promoted := w.get(url)
	equal(t, "the bundle with another ring", promoted, before)
	w.sealed(map[string]int{old.ID: 3}) // client secret, bundle, token
	equal(t, "boxes that were sealed again", must(w.rewrapBesideOthers(key)), 3)
	w.sealed(map[string]int{fresh.ID: 3})
	equal(t, "boxes that were sealed again the second time", must(Rewrap(ctx, w.store(), w.keys)), 0)
	equal(t, "the version of the secret", get(w, w.store().Secrets, nodeKey).Value.Version, 1)
	w.restart(seal.Ring{Keys: []seal.Key{fresh}}) // after `keys drop`
	w.change(func(v *store.View) error {
		secret, version, err := w.service.SecretIn(v, nodeKey)
		if version != 1 || secret != "hush-hush" {
			t.Errorf("the client secret: %q %d, %v", secret, version, err)
		}
		return err
	})
	// The URL was signed with the key that is gone; its successor gives out the same.
	w.answers("the URL of a key that is gone", url, 403)
	_, dropped := w.get(w.url())
	equal(t, "the bundle with another key", dropped, before)
}

func (w *world) restart(keys seal.Ring) {
	w.keys = keys
	w.start(w.memory.Another())
}

// sealed checks the number of boxes by key.
func (w *world) sealed(want map[string]int) {
	w.t.Helper()
	got := must(Boxes(w.t.Context(), w.store()))
	equal(w.t, "the boxes by key", fmt.Sprint(got), fmt.Sprint(want))
}

// rewrapBesideOthers rewraps while another writer changes each row just before it is written.
func (w *world) rewrapBesideOthers(key string) (int, error) {
	other, n := w.another(), 0
	w.memory.Before(func(c storetest.Call) error {
		if n++; c.Op == "commit" && n <= 8 {
			edit(other, other.store().Credentials, key, func(c *store.Credential) { c.Delivered++ })
		}
		return nil
	})
	defer w.memory.Before(nil)
	return Rewrap(w.t.Context(), w.store(), w.keys)
}

// Boxes that a replica seals with the older key meanwhile, before its restart, are sealed again
// too.
func TestRewrapBesideTheOlderKey(t *testing.T) {
	w, ctx := beside(t), t.Context()
	must(0, w.put(withPrincipal, false, true))
	other, old, fresh := w.another(), w.keys.Keys[0], rptest.Ring().Keys[0]
	w.restart(seal.Ring{Keys: []seal.Key{fresh, old}})
	w.memory.Before(func(c storetest.Call) error {
		if c.Op == "commit" {
			w.memory.Before(nil)
			other.change(func(v *store.View) error {
				return other.service.KeepSecret(v, "a/node", "late", 1)
			})
		}
		return nil
	})
	equal(t, "boxes that were sealed again", must(Rewrap(ctx, w.store(), w.keys)), 2)
	w.sealed(map[string]int{fresh.ID: 2})
}

// A box that cannot be opened does not stop the others from being sealed again.
func TestRewrapOfWhatCannotBeOpened(t *testing.T) {
	w, ctx := beside(t), t.Context()
	must(0, w.put(withPrincipal, true, true))
	w.work()
	old, fresh, lost := w.keys.Keys[0], rptest.Ring().Keys[0], rptest.Ring()
	w.change(func(v *store.View) error {
		box := lost.Seal(secretSeal+clusterKey+"/lost", []byte("x"))
		return w.store().Secrets.Put(v, clusterKey+"/lost", store.Sealed{Box: box})
	})
	w.restart(seal.Ring{Keys: []seal.Key{fresh, old}})
	n, err := Rewrap(ctx, w.store(), w.keys)
	if n != 2 || err == nil || !strings.Contains(err.Error(), "not in the ring") {
		t.Errorf("%d, %v", n, err)
	}
	w.sealed(map[string]int{fresh.ID: 2, lost.Keys[0].ID: 1})
}

// The comparison of the stored client secret with a given one.
func TestCompare(t *testing.T) {
	w := beside(t)
	compare := func(given string) (got flexnode.Secret, err error) {
		_, err = w.store().Update(t.Context(), "", nil, func(v *store.View) error {
			got = w.service.Compare(v, nodeKey, given)
			return nil
		})
		return got, err
	}
	equal(t, "none is stored", must(compare("a")), flexnode.Secret{})
	w.change(func(v *store.View) error { return w.service.KeepSecret(v, nodeKey, "a", 4) })
	equal(t, "the same", must(compare("a")), flexnode.Secret{Version: 4, Known: true, Same: true})
	for _, given := range []string{"", "b"} {
		equal(t, given, must(compare(given)), flexnode.Secret{Version: 4, Known: true})
	}
	w.restart(rptest.Ring()) // the key is lost
	_, err := compare("")
	equal(t, "one that cannot be opened is an error", err != nil, true)
	equal(t, "another in the place of one that cannot be opened", must(compare("b")),
		flexnode.Secret{Version: 4})
	w.change(func(v *store.View) error { w.store().Secrets.Delete(v, nodeKey); return nil })
	equal(t, "after it was dropped", must(compare("")), flexnode.Secret{})
}
