package front

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/api/flexnode/sealed"
	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// A running agent whose identity is replaced reads the configuration that tells it the new one, and
// gets the new secret; when the new identity was seen, the old one has no access (B5).
func TestIdentityIsReplaced(t *testing.T) {
	w, i, ops := guarded(t)
	w.must(201, "PUT", nodeURL("n"), nodeOf(clientA, "first"), ops)
	w.caughtUp()
	old, fresh := i.app(t, w, clientA), i.app(t, w, clientB)
	r, _ := w.must(200, "GET", nodeURL("n"), "", old)
	w.must(403, "GET", nodeURL("n"), "", fresh)

	w.must(200, "PUT", nodeURL("n"), nodeOf(clientB, "second"), ops)
	w.caughtUp()
	n := w.node(200, "GET", nodeURL("n"), "", old, "If-None-Match: "+r.Header.Get("ETag"))
	azure := n.Properties.Config["azure"].(map[string]any)
	if got := azure["servicePrincipal"].(map[string]any)["clientId"]; got != clientB {
		t.Errorf("the agent is told the identity %v", got)
	}
	for who, token := range map[string]string{"the former": old, "the present": fresh} {
		c, version := w.refresh(t, token)
		if c.Azure.ServicePrincipal.ClientSecret.Reveal() != "second" ||
			c.Azure.BootstrapToken.Token.Reveal() == "" ||
			version != decimal(w.storedNode("n").Revision) {
			t.Errorf("%s identity gets %+v of version %s", who, c.Azure, version)
		}
	}
	w.must(204, "POST", nodeURL("n", "/reportStatus"), `{"agentVersion":"1"}`, old)
	w.caughtUp()
	w.must(200, "GET", nodeURL("n"), "", old)

	w.must(200, "GET", nodeURL("n"), "", fresh, `If-None-Match: "1"`)
	w.caughtUp()
	w.must(403, "GET", nodeURL("n"), "", old)
	w.must(403, "POST", nodeURL("n", "/refreshCredentials"), "{}", old)
	w.must(200, "GET", nodeURL("n"), "", fresh)
}

// An agent is let in as whichever identity it was told, however often that is replaced meanwhile.
func TestIdentityIsReplacedTwice(t *testing.T) {
	w, i, ops := guarded(t)
	w.must(201, "PUT", nodeURL("n"), nodeOf(clientA, "first"), ops)
	w.must(200, "PUT", nodeURL("n"), nodeOf(clientB, "second"), ops)
	w.must(200, "PUT", nodeURL("n"), nodeOf(clientC, "third"), ops)
	w.caughtUp()
	for _, client := range []string{clientA, clientB} {
		as := i.app(t, w, client)
		w.must(200, "GET", nodeURL("n"), "", as, `If-None-Match: "1"`)
		w.must(204, "POST", nodeURL("n", "/reportStatus"), `{"agentVersion":"1"}`, as)
		c, _ := w.refresh(t, as)
		if got := c.Azure.ServicePrincipal; got.ClientSecret.Reveal() != "third" ||
			got.ClientID != clientC {
			t.Errorf("%s gets %+v", client, got)
		}
	}
	w.must(200, "GET", nodeURL("n"), "", i.app(t, w, clientC), `If-None-Match: "1"`)
	w.caughtUp()
	for _, client := range []string{clientA, clientB} {
		w.must(403, "GET", nodeURL("n"), "", i.app(t, w, client))
	}
}

// A new client secret reaches the node that runs, and no other caller: no role allows reading it.
func TestOnlyTheNodeGetsItsCredentials(t *testing.T) {
	w, i, ops := guarded(t)
	w.must(201, "PUT", nodeURL("n"), nodeOf(clientA, "first"), ops)
	w.must(200, "PUT", nodeURL("n"), nodeOf(clientA, "second"), ops)
	w.caughtUp()
	c, _ := w.refresh(t, i.app(t, w, clientA))
	if got := c.Azure.ServicePrincipal.ClientSecret.Reveal(); got != "second" {
		t.Errorf("the node gets %s", got)
	}
	_, text := w.must(403, "POST", nodeURL("n", "/refreshCredentials"), "{}", ops)
	if strings.Contains(text, "second") {
		t.Errorf("the operator gets %s", text)
	}
	w.must(403, "POST", nodeURL("n", "/refreshCredentials"), "{}", i.app(t, w, clientB))
	if strings.Contains(w.audit.String(), "second") ||
		!strings.Contains(w.audit.String(), "refreshCredentials/action") {
		t.Errorf("audit: %s", w.audit.String())
	}
}

// The machine of an Arc node that polls Resource Manager gets its configuration there, and no
// secret: Resource Manager does not say which machine it is.
func TestArcMachineBehindManager(t *testing.T) {
	w := newEdge(t)
	w.front = w.manager
	as := []string{"x-ms-client-object-id: o", "x-ms-client-app-id: a-machine"}
	arc := `{"properties":{"kubernetesAuth":{"useAzureAuth":true},"azureAuth":{"method":"arc",
		"arc":{"onboarding":{"clientId":"` + clientA + `","clientSecret":"hush-hush"}}}}}`
	n := w.node(201, "PUT", nodeURL("n"), arc, as...)
	w.caughtUp()
	key := must(sealed.NewKey())
	ask := `{"publicKey":"` + base64.StdEncoding.EncodeToString(key.Public()) + `"`
	w.must(403, "POST", nodeURL("n", "/refreshCredentials"), ask+"}", as...)
	as = append(as, "x-ms-flexnode-uid: "+n.Properties.ResourceUID)
	w.must(403, "POST", nodeURL("n", "/refreshCredentials"), ask+`,"revokePrevious":true}`, as...)
	_, text := w.must(200, "POST", nodeURL("n", "/refreshCredentials"), ask+"}", as...)
	answer := decoded[api.Refreshed](t, text)
	bundle, err := key.Open(sealed.About{ID: n.ID, UID: n.Properties.ResourceUID},
		answer.EncapsulatedKey, answer.Ciphertext)
	if err != nil || !strings.Contains(string(bundle), clientA) ||
		strings.Contains(string(bundle), "hush") ||
		strings.Contains(string(bundle), "enrolmentSecret") {
		t.Errorf("it gets %s, %v", bundle, err)
	}
	w.must(200, "PUT", nodeURL("n"), `{"properties":{}}`, as...) // joins with a bootstrap token
	w.caughtUp()
	w.must(403, "POST", nodeURL("n", "/refreshCredentials"), ask+"}", as...)
	w.must(200, "PUT", nodeURL("n"), arc, as...)
	w.must(200, "DELETE", nodeURL("n"), "", as...)
	w.caughtUp()
	if _, text := w.must(404, "GET", nodeURL("n"), "", as...); !strings.Contains(text, TombstoneInfo) {
		t.Errorf("after the deletion it is answered %s", text)
	}
	w.must(204, "POST", nodeURL("n", "/leave"), "{}", as...)
	w.must(403, "POST", nodeURL("n", "/leave"), ask+"}", as...)
	w.must(404, "POST", nodeURL("n", "/leave"), "{}", as[:2]...)
}

// Who deletes a node and makes another of its name has two: the machine of the former learns that
// it is gone, and does not follow the new one (M4).
func TestDeleteThenPutMakesTwoNodes(t *testing.T) {
	w, i, ops := guarded(t)
	former := w.node(201, "PUT", nodeURL("n"), nodeOf(clientA, "x"), ops)
	w.must(200, "DELETE", nodeURL("n"), "", ops)
	present := w.node(201, "PUT", nodeURL("n"), nodeOf(clientA, "x"), ops)
	w.caughtUp()
	a := i.app(t, w, clientA)
	of := func(n api.FlexNodeConfig) string {
		return "x-ms-flexnode-uid: " + strings.ToUpper(n.Properties.ResourceUID)
	}
	for range 2 {
		for _, etag := range []string{former.ETag, present.ETag} {
			_, text := w.must(404, "GET", nodeURL("n"), "", a, of(former), "If-None-Match: "+etag)
			if !strings.Contains(text, TombstoneInfo) ||
				!strings.Contains(text, former.Properties.ResourceUID) {
				t.Errorf("the former machine is told %s", text)
			}
		}
	}
	_, text := w.must(404, "POST", nodeURL("n", "/reportStatus"), "{}", a, of(former))
	if !strings.Contains(text, TombstoneInfo) {
		t.Errorf("the former machine's report is answered %s", text)
	}
	w.must(304, "GET", nodeURL("n"), "", a, of(present), "If-None-Match: "+present.ETag)
	w.must(200, "GET", nodeURL("n"), "", a)
	// A uid that never was is no reason to give a machine back.
	stranger := "x-ms-flexnode-uid: 00000000-0000-0000-0000-000000000001"
	_, text = w.must(404, "GET", nodeURL("n"), "", ops, stranger)
	if strings.Contains(text, TombstoneInfo) {
		t.Errorf("a tombstone for a uid that never was: %s", text)
	}
	w.must(403, "GET", nodeURL("n"), "", a, stranger)
}

// A node that went with its cluster's registration is not told to give its machine back (M5).
func TestTombstonesThatDoNotWipe(t *testing.T) {
	w, i, ops := guarded(t)
	n := w.node(201, "PUT", nodeURL("n"), nodeOf(clientA, "x"), ops)
	key := clusterKey + "/n"
	w.change(func(v *store.View) error {
		row := w.api.Store.Nodes.Row(v, key)
		w.api.Store.Nodes.Delete(v, key)
		return w.api.Store.AddTombstone(v, key, flexnode.Tombstone{
			UID: row.Value.UID, Identity: row.Value.Identity,
			Revision: row.Value.Revision, Deleted: w.clock.Now(),
		})
	})
	for _, header := range []string{"Accept: */*", "x-ms-flexnode-uid: " +
		n.Properties.ResourceUID} {
		_, text := w.must(404, "GET", nodeURL("n"), "", i.app(t, w, clientA), header)
		if strings.Contains(text, TombstoneInfo) {
			t.Errorf("with %s: %s", header, text)
		}
	}
}

// A poll of an unchanged node does nothing in the store; who polls is noted.
func TestPollsLeaveTheStoreAlone(t *testing.T) {
	w, i, ops := guarded(t)
	r, _ := w.must(201, "PUT", nodeURL("n"), nodeOf(clientA, "x"), ops)
	w.caughtUp()
	a := i.app(t, w, clientA)
	calls := 0
	w.memory.Before(func(c storetest.Call) error {
		if c.Op != "follow" && c.Op != "changes" {
			calls++
		}
		return nil
	})
	for range 3 {
		w.must(304, "GET", nodeURL("n"), "", a, "If-None-Match: "+r.Header.Get("ETag"))
	}
	w.memory.Before(nil)
	if calls != 0 {
		t.Errorf("three polls have called the store %d times", calls)
	}
	if last := w.api.Seen.Last(clusterKey + "/n"); !last.Equal(w.clock.Now()) {
		t.Errorf("last seen %s", last)
	}
	// Another caller's conditional GET is no sign of life.
	w.clock.Pass(1e12)
	w.must(304, "GET", nodeURL("n"), "", ops, "If-None-Match: "+r.Header.Get("ETag"))
	if last := w.api.Seen.Last(clusterKey + "/n"); last.Equal(w.clock.Now()) {
		t.Error("the operator counts as the node")
	}
}

// With an Azure identity there is no token: the URL, which hands out the client secret, is consumed
// by the first poll of the machine that has fetched it (M11).
func TestURLIsConsumedByAPoll(t *testing.T) {
	w, i, ops := guarded(t)
	body := strings.ReplaceAll(withPrincipal, principal, clientA)
	r, text := w.must(201, "PUT", nodeURL("n")+"&configUrl=true", body, ops)
	url := path(shownNode(t, text).Properties.ConfigURL)
	w.must(200, "GET", url, "")
	w.caughtUp()
	w.must(304, "GET", nodeURL("n"), "", i.app(t, w, clientA),
		"If-None-Match: "+r.Header.Get("ETag"))
	w.must(403, "GET", url, "")
	row := must(w.api.Store.Credentials.Get(context.Background(), w.storedNode("n").Credential))
	if row.Exists() && row.Value.State == store.Live {
		t.Errorf("the credential is %s", row.Value.State)
	}
}
