package credential

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// consume uses a credential, like a machine.
func (w *world) consume(key string) {
	a := Application{KeyHash: "k", Name: "csr"}
	must(0, w.service.Consume(w.t.Context(), key, a, store.Condition{}))
}

// joins puts the node with a client secret, and makes its credential, with or without a token.
func (w *world) joins(useAzure bool) {
	d := withPrincipal
	d.KubernetesAuth.UseAzureAuth = useAzure
	must(0, w.put(d, true, true))
	w.work()
}

// A request that another approver has approved consumes the token in any case, for any purpose:
// otherwise everyone who has the token could use it for a day.
func TestForeignApprovalConsumes(t *testing.T) {
	w, ctx := live(t), t.Context()
	url, key := w.url(), w.node().Credential
	id := w.credential(key).TokenID
	foreign := Application{TokenID: id, Node: "edge-77", KeyHash: "x", Name: "csr-x"}
	must(0, w.service.Consume(ctx, key, foreign, store.Condition{}))
	w.answers("the URL", url, 403)
	equal(t, "another machine is approved",
		w.review(Application{TokenID: id, Node: "edge-1", KeyHash: "y", Name: "csr-y"}), false)
	must(0, w.service.Issued(ctx, key, "csr-y", store.Condition{}))
	equal(t, "the certificate of another request counts", w.credential(key).Issued != nil, false)
	must(0, w.service.Issued(ctx, key, "csr-x", store.Condition{}))
	w.clock.Pass(Grace)
	w.work()
	w.consistent([]string{url})
}

// A token that is used before it was handed out did not come from the provider.
func TestUsedBeforeHandedOut(t *testing.T) {
	w := beside(t)
	must(0, w.put(withToken, true, true))
	key := w.node().Credential
	a := Application{TokenID: w.credential(key).TokenID, Node: "edge-1"}
	must(0, w.service.Consume(t.Context(), key, a, store.Condition{}))
	equal(t, "its state", w.credential(key).State, store.Revoking)
	w.work()
	if len(w.cluster.secrets) != 0 || w.node().State != "" ||
		!strings.Contains(w.node().Reason, revokedWhy) {
		t.Errorf("%v, %+v", w.cluster.secrets, w.node())
	}
}

// The first poll of its identity after its configuration was fetched consumes a credential without
// a token: the URL hands out the client secret.
func TestTheFirstPollConsumesAURLWithoutAToken(t *testing.T) {
	w, ctx := beside(t), t.Context()
	must(0, w.put(withPrincipal, true, true))
	w.work()
	equal(t, "Secrets for a node without a token", len(w.cluster.secrets), 0)
	url, key := w.url(), w.node().Credential
	must(0, w.service.Seen(ctx, nodeKey, w.node()))
	equal(t, "a poll before the configuration was fetched", w.credential(key).State, store.Live)
	_, text := w.get(url)
	c, _ := bundle(t, text)
	if c.Azure.ServicePrincipal.ClientSecret.Reveal() != "hush-hush" ||
		c.Azure.BootstrapToken != nil && c.Azure.BootstrapToken.Token.Reveal() != "" {
		t.Errorf("the bundle: %s", text)
	}
	stranger := w.node()
	stranger.UID = "another"
	must(0, w.service.Seen(ctx, nodeKey, stranger))
	stranger = w.node()
	stranger.Identity = "app:t/other"
	must(0, w.service.Seen(ctx, nodeKey, stranger))
	equal(t, "its state after another node's poll", w.credential(key).State, store.Live)
	must(0, w.service.Seen(ctx, nodeKey, w.node()))
	w.answers("after the poll", url, 403)
	equal(t, "its state after the poll", w.credential(key).State, store.Consumed)
	w.clock.Pass(Grace)
	w.work()
	w.consistent([]string{url})
	audited := strings.Contains(w.audit.String(), "configuration URL consumed")
	equal(t, "it is in the audit log", audited, true)
	n := w.node()
	reads := w.memory.Reads()
	must(0, w.service.Seen(ctx, nodeKey, n))
	equal(t, "reads of a poll of a node without a credential", w.memory.Reads()-reads, 0)
}

// A poll of a node that joins with a token consumes nothing; the use of its token does.
func TestAPollDoesNotConsumeAToken(t *testing.T) {
	w := live(t)
	w.get(w.url())
	n := w.node()
	reads := w.memory.Reads()
	must(0, w.service.Seen(t.Context(), nodeKey, n))
	equal(t, "reads", w.memory.Reads()-reads, 0)
	equal(t, "its state", w.credential(n.Credential).State, store.Live)
}

// A node's former identity may act for it until the present one was seen.
func TestFormerIdentityIsForgotten(t *testing.T) {
	w := beside(t)
	must(0, w.put(withPrincipal, false, true))
	edit(w, w.store().Nodes, nodeKey, func(n *flexnode.Node) { n.Former = "app:t/before" })
	must(0, w.service.Seen(t.Context(), nodeKey, w.node()))
	equal(t, "the node still", w.node().Former, "")
}

// Await does not use the store while it waits, and ends as soon as the credential is Live.
func TestAwait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		must(0, w.put(withToken, true, true))
		key := w.node().Credential
		got := make(chan store.Row[store.Credential])
		begin := time.Now()
		go func() { got <- must(w.service.Await(t.Context(), key)) }()
		synctest.Wait()
		reads := w.memory.Reads()
		time.Sleep(6 * time.Hour)
		w.memory.Break() // the connection to the store
		time.Sleep(time.Minute)
		if again := w.memory.Reads() - reads; again > 2 {
			t.Errorf("%d reads while it waits", again)
		}
		w.work()
		if row := <-got; row.Value.State != store.Live || time.Since(begin) > 6*time.Hour+time.Minute {
			t.Errorf("%s after %s", row.Value.State, time.Since(begin))
		}
		equal(t, "one that is live", must(w.service.Await(t.Context(), key)).Value.State, store.Live)
		equal(t, "one that is not there", must(w.service.Await(t.Context(), clusterKey+"/none")).Exists(),
			false)
		w.cluster.down = errDown
		must(0, w.regenerate())
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		row, err := w.service.Await(ctx, w.node().Credential)
		if err != nil || row.Value.State != store.Pending {
			t.Errorf("when ctx ends: %+v, %v", row, err)
		}
	})
}

func unknownCaller(string) bool { return false } // its identity is not the node's

// refresh returns the secrets in the node's own bundle: the client secret and the token.
func (w *world) refresh(revoke bool) (secret, token string, err error) {
	w.t.Helper()
	row := get(w, w.store().Nodes, nodeKey)
	got, err := w.service.Refresh(w.t.Context(), row, api.Refresh{RevokePrevious: revoke},
		unknownCaller)
	if err != nil {
		return "", "", err
	}
	c, resource := bundle(w.t, string(got.Bundle))
	if resource.UID != row.Value.UID || resource.ConfigVersion != got.ConfigVersion {
		w.t.Errorf("the bundle is of %+v, the answer of %s", resource, got.ConfigVersion)
	}
	if c.Azure.ServicePrincipal != nil {
		secret = c.Azure.ServicePrincipal.ClientSecret.Reveal()
	}
	if c.Azure.BootstrapToken != nil {
		token = c.Azure.BootstrapToken.Token.Reveal()
	}
	equal(w.t, "whether it expires", got.Expires != nil, token != "")
	return secret, token, nil
}

// refreshWorking is refresh while the cluster's reconciler works.
func (w *world) refreshWorking(revoke bool) (secret, token string) {
	done := make(chan error)
	go func() {
		var err error
		secret, token, err = w.refresh(revoke)
		done <- err
	}()
	for {
		select {
		case err := <-done:
			must(0, err)
			return secret, token
		default:
			w.tryOnce()
		}
	}
}

// The node itself gets its present configuration with the secrets: the client secret, and an unused
// token.
func TestRefresh(t *testing.T) {
	w, ctx := beside(t), t.Context()
	w.joins(false)
	secret, first, err := w.refresh(false)
	id, _, _ := strings.Cut(first, ".")
	if err != nil || secret != "hush-hush" || w.cluster.secrets[id].token != first {
		t.Errorf("%q, %q, %v; the cluster has %v", secret, first, err, w.cluster.secrets)
	}
	_, again, _ := w.refresh(false)
	equal(t, "the token after an answer that was lost", again, first)
	equal(t, "the token is approved",
		w.review(Application{TokenID: id, Node: "edge-1", KeyHash: "k", Name: "csr"}), true)
	if _, second := w.refreshWorking(false); second == "" || second == first {
		t.Errorf("after the first was used: %q", second)
	}
	w.cluster.down = errDown
	must(0, w.regenerate())
	row := get(w, w.store().Nodes, nodeKey)
	got, err := w.service.Refresh(ctx, row, api.Refresh{Joined: true}, unknownCaller)
	if err != nil || !strings.Contains(string(got.Bundle), "hush-hush") || got.Expires != nil ||
		!strings.Contains(string(got.Bundle), `"bootstrapToken": {}`) {
		t.Errorf("for a node that has joined, with a dead cluster: %+v, %v: %s", got, err, got.Bundle)
	}
	for word, want := range map[string]bool{"hush-hush": false, first: false,
		"credentials refreshed": true} {
		equal(t, "the audit log has "+word, strings.Contains(w.audit.String(), word), want)
	}
	row.Value.UID = "another"
	_, err = w.service.Refresh(ctx, row, api.Refresh{}, unknownCaller)
	equal(t, "a node that was replaced is not there", errors.Is(err, ErrNoNode), true)
}

// After a leak everything that was handed out is revoked at once: former identities, the URL, its
// token, and one that a machine joins with. The node gets another token.
func TestRevokePrevious(t *testing.T) {
	t.Parallel()
	for _, useAzure := range []bool{false, true} {
		w := newWorld(t)
		w.joins(useAzure)
		joining, key := w.url(), w.node().Credential
		w.consume(key)
		must(0, w.regenerate()) // the node does not refer to the one that is used any more
		w.work()
		url, live := w.url(), w.node().Credential
		_, before, err := w.refresh(false)
		equal(t, "without a token", must(before, err) == "", useAzure)
		edit(w, w.store().Nodes, nodeKey, func(n *flexnode.Node) { n.Former = "app:t/before" })
		secret, token := w.refreshWorking(true)
		if secret != "hush-hush" || (token == "") != useAzure || !useAzure && token == before {
			t.Errorf("%q, %q; before %q", secret, token, before)
		}
		equal(t, "the node still", w.node().Former, "")
		equal(t, "the enrolment secret that was handed out", w.node().Enrolment, "")
		for _, u := range []string{joining, url} {
			w.answers("a previous URL", u, 403)
		}
		w.work()
		w.gone(key, live)
		equal(t, "the Secrets", len(w.cluster.secrets), map[bool]int{false: 1}[useAzure])
	}
}

// The cost of a revocation depends only on the rows of the caller's node, not on those of others;
// and however often machines join as a node, few rows of it are kept.
func TestRevokePreviousReadsItsOwn(t *testing.T) {
	w := beside(t)
	w.joins(true)
	var joining []string
	for range maxJoining + 2 { // each used by a machine, and then replaced
		w.work()
		joining = append(joining, w.node().Credential)
		w.consume(w.node().Credential)
		must(0, w.regenerate())
	}
	w.work()
	if n := w.node(); len(n.Joining) != maxJoining || !slices.Equal(n.Joining, joining[2:]) {
		t.Errorf("%v are kept of %v", n.Joining, joining)
	}
	scanned := 0
	w.memory.Before(func(c storetest.Call) error {
		if c.Op == "scan" {
			scanned++
		}
		return nil
	})
	secret, _, err := w.refresh(true)
	equal(t, "the secret", must(secret, err), "hush-hush")
	w.memory.Before(nil)
	if n := w.node(); scanned != 0 || len(n.Joining) != 0 {
		t.Errorf("%d pages of credentials were read; %v are kept", scanned, n.Joining)
	}
	w.work()
	w.gone(joining...)
}

// gone checks that credentials are not there any more.
func (w *world) gone(keys ...string) {
	w.t.Helper()
	for _, key := range keys {
		equal(w.t, key+" is there", get(w, w.store().Credentials, key).Exists(), false)
	}
}

// The deletion of a node revokes everything that machines still join with.
func TestJoiningGoesWithItsNode(t *testing.T) {
	w := live(t)
	joining := w.node().Credential
	w.consume(joining)
	must(0, w.regenerate())
	must(0, w.delete())
	w.work()
	w.gone(joining)
	equal(t, "what the cluster has", len(w.cluster.secrets), 0)
}

// A machine that has joined, or was too late, leaves nothing in its node.
func TestJoiningEnds(t *testing.T) {
	w := live(t)
	w.consume(w.node().Credential)
	must(0, w.regenerate())
	w.work()
	equal(t, "those that join before", len(w.node().Joining), 1)
	w.clock.Pass(Joining)
	w.work()
	if n := w.node(); len(n.Joining) != 0 || n.Credential == "" {
		t.Errorf("after: %v, %q", n.Joining, n.Credential)
	}
}

// A node that needs a bootstrap token gets an error while none is ready. A retry while the cluster
// is down makes no other credential, since no machine has a Pending one.
func TestRefreshIsNotReady(t *testing.T) {
	t.Parallel()
	for _, revoke := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			must(0, w.put(withToken, revoke, true))
			key := w.node().Credential
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				row := get(w, w.store().Nodes, nodeKey)
				_, err := w.service.Refresh(ctx, row, api.Refresh{RevokePrevious: revoke}, unknownCaller)
				cancel()
				if !errors.Is(err, ErrNotReady) || revoke && w.node().Credential != key {
					t.Errorf("%v; %s, then %s", err, key, w.node().Credential)
				}
			}
		})
	}
}

// A full store does not keep a machine from its configuration: only the count is not written.
func TestHandedOutWhileTheStoreIsFull(t *testing.T) {
	w := live(t)
	url := w.url()
	w.memory.SetQuota(1)
	for range 2 {
		w.answers("the URL", url, 200)
	}
	w.memory.SetQuota(0)
	c := w.credential(w.node().Credential)
	equal(t, "its state", c.State, store.Live)
	equal(t, "the deliveries that were counted", c.Delivered, 0)
}
