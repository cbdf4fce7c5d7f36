package front

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/api/flexnode/sealed"
	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// A running agent whose identity is replaced reads the configuration with the new identity and gets
// the new secret; once the new identity was seen, the old one has no access (B5).
func TestIdentityIsReplaced(t *testing.T) {
	w, i, ops := guarded(t)
	w.settles(201, "PUT", nodeURL("n"), nodeOf(clientA, "first"), ops)
	old, fresh := i.app(t, w, clientA), i.app(t, w, clientB)
	r, _ := w.must(200, "GET", nodeURL("n"), "", old)
	w.must(403, "GET", nodeURL("n"), "", fresh)

	w.settles(200, "PUT", nodeURL("n"), nodeOf(clientB, "second"), ops)
	n := w.node(200, "GET", nodeURL("n"), "", old, "If-None-Match: "+r.Header.Get("ETag"))
	azure := shownConfig(t, n)["azure"].(map[string]any)
	equal(t, "the identity that the agent gets",
		azure["servicePrincipal"].(map[string]any)["clientId"], clientB)
	for who, token := range map[string]string{"the former": old, "the present": fresh} {
		c, version := w.refresh(t, token)
		if c.Azure.ServicePrincipal.ClientSecret.Reveal() != "second" ||
			c.Azure.BootstrapToken.Token.Reveal() == "" ||
			version != flexnode.ShownVersion(w.storedNode("n").Revision) {
			t.Errorf("%s identity gets %+v of version %s", who, c.Azure, version)
		}
	}
	w.settles(204, "POST", nodeURL("n", "/reportStatus"), `{"agentVersion":"1"}`, old)
	w.must(200, "GET", nodeURL("n"), "", old)

	w.settles(200, "GET", nodeURL("n"), "", fresh, `If-None-Match: "1"`)
	w.must(403, "GET", nodeURL("n"), "", old)
	w.must(403, "POST", nodeURL("n", "/refreshCredentials"), "{}", old)
	w.must(200, "GET", nodeURL("n"), "", fresh)
}

// An Arc machine behind Resource Manager, which does not send its id, gets no secret.
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
	answer := reads[api.Refreshed](w, 200, "POST", nodeURL("n", "/refreshCredentials"), ask+"}", as...)
	bundle, err := key.Open(sealed.About{ID: n.ID, UID: n.Properties.ResourceUID},
		answer.EncapsulatedKey, answer.Ciphertext)
	if err != nil || !strings.Contains(string(bundle), clientA) ||
		strings.Contains(string(bundle), "hush") ||
		strings.Contains(string(bundle), "enrolmentSecret") {
		t.Errorf("it gets %s, %v", bundle, err)
	}
	w.settles(200, "PUT", nodeURL("n"), `{"properties":{}}`, as...) // joins with a bootstrap token
	w.must(403, "POST", nodeURL("n", "/refreshCredentials"), ask+"}", as...)
	w.must(200, "PUT", nodeURL("n"), arc, as...)
	w.settles(200, "DELETE", nodeURL("n"), "", as...)
	w.buried("GET", nodeURL("n"), "", as...)
	w.must(204, "POST", nodeURL("n", "/leave"), "{}", as...)
	w.must(403, "POST", nodeURL("n", "/leave"), ask+"}", as...)
	w.must(404, "POST", nodeURL("n", "/leave"), "{}", as[:2]...)
}

// A node made again is another one: the former machine learns that its own is gone (M4).
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
			text := w.buried("GET", nodeURL("n"), "", a, of(former), "If-None-Match: "+etag)
			has(t, "what the former machine gets", text, former.Properties.ResourceUID)
		}
	}
	w.buried("POST", nodeURL("n", "/reportStatus"), "{}", a, of(former))
	w.must(304, "GET", nodeURL("n"), "", a, of(present), "If-None-Match: "+present.ETag)
	w.must(200, "GET", nodeURL("n"), "", a)
	// A uid that never was is no reason to give a machine back.
	stranger := "x-ms-flexnode-uid: 00000000-0000-0000-0000-000000000001"
	_, text := w.must(404, "GET", nodeURL("n"), "", ops, stranger)
	lacks(t, "the answer for a uid that never was", text, TombstoneInfo)
	w.must(403, "GET", nodeURL("n"), "", a, stranger)
}

// A node that was deleted with its cluster's registration does not wipe its machine (M5).
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
		lacks(t, "with "+header, text, TombstoneInfo)
	}
}

// A poll of an unchanged node does not use the store; its time is noted.
func TestPollsLeaveTheStoreAlone(t *testing.T) {
	w, i, ops := guarded(t)
	r, _ := w.settles(201, "PUT", nodeURL("n"), nodeOf(clientA, "x"), ops)
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
	equal(t, "the calls of three polls to the store", calls, 0)
	equal(t, "when it was seen last", w.api.Seen.Last(clusterKey+"/n"), w.clock.Now())
	// Another caller's conditional GET is no sign of life.
	w.clock.Pass(1e12)
	w.must(304, "GET", nodeURL("n"), "", ops, "If-None-Match: "+r.Header.Get("ETag"))
	equal(t, "the operator counts as the node", w.api.Seen.Last(clusterKey+"/n").Equal(w.clock.Now()),
		false)
}

// identities are the Azure identities that machines join with: azureAuth, and the caller.
var identities = map[string]struct {
	auth string
	who  Caller
}{
	"service principal": {
		`"method":"servicePrincipal","servicePrincipal":{"clientId":"` + clientA + `",
			"clientSecret":"hush-hush"}`,
		Caller{TenantID: tenant, AppID: clientA, ObjectID: "o", Type: "Application"},
	},
	"user-assigned identity": {
		`"method":"managedIdentity","managedIdentity":{"clientId":"` + clientA + `"}`,
		Caller{TenantID: tenant, AppID: clientA, ObjectID: "o", Type: "ManagedIdentity"},
	},
	"system-assigned identity": {
		`"method":"managedIdentity","managedIdentity":{"principalId":"` + clientB + `"}`,
		Caller{TenantID: tenant, AppID: "a", ObjectID: clientB, Type: "ManagedIdentity"},
	},
	"Arc": {
		`"method":"arc"`,
		Caller{TenantID: tenant, AppID: "a", ObjectID: "o", Type: "ManagedIdentity",
			MachineID: strings.TrimSuffix(cluster, "/providers/"+flexnode.ClusterType+"/Factory") +
				"/providers/Microsoft.HybridCompute/machines/N"},
	},
}

// The URL of a machine that joins with an identity dies with the identity's first request, of any
// kind, after a machine has fetched it, and not with requests of others.
func TestURLDiesWithTheFirstPoll(t *testing.T) {
	t.Parallel()
	for name, identity := range identities {
		for _, ask := range []string{"a poll", "a read", "a report", "a poll through ARM"} {
			t.Run(name+"/"+ask, func(t *testing.T) {
				w := newEdge(t)
				r, text := w.must(201, "PUT", nodeURL("n")+"&configUrl=true",
					`{"properties":{"continuousMonitoring":true,"azureAuth":{`+identity.auth+`},
						"kubernetesAuth":{"useAzureAuth":true}}}`)
				n := shownNode(t, text)
				url := path(n.Properties.ConfigURL)
				w.settles(200, "GET", url, "")
				same := "If-None-Match: " + r.Header.Get("ETag")
				w.must(304, "GET", nodeURL("n"), "", same)
				w.must(200, "GET", url, "") // the operator is not the node
				w.caller = identity.who
				switch ask {
				case "a poll":
					w.must(304, "GET", nodeURL("n"), "", same)
				case "a read":
					w.must(200, "GET", nodeURL("n"), "")
				case "a report":
					w.must(204, "POST", nodeURL("n", "/reportStatus"), `{"agentVersion":"1"}`)
				default:
					r := w.send(w.manager, "GET", nodeURL("n"), "", same,
						"x-ms-flexnode-uid: "+n.Properties.ResourceUID,
						"x-ms-client-tenant-id: "+identity.who.TenantID,
						"x-ms-client-app-id: "+identity.who.AppID,
						"x-ms-client-object-id: "+identity.who.ObjectID)
					equal(t, "the status through Resource Manager", r.StatusCode, 304)
				}
				w.must(403, "GET", url, "")
			})
		}
	}
}

// From any identity to any other: both are the node until the new one has polled, and then only the
// new one. A trial does not count: the node may go back to the former one.
func TestFromAnyIdentityToAnyOther(t *testing.T) {
	t.Parallel()
	for from, before := range identities {
		for to, after := range identities {
			if from == to || before.who.AppID == after.who.AppID && after.who.AppID == clientA {
				continue
			}
			t.Run(from+" to "+to, func(t *testing.T) {
				w := newEdge(t)
				operator := w.caller
				put := func(status int, auth string) {
					w.caller = operator
					w.settles(status, "PUT", nodeURL("n"),
						`{"properties":{"continuousMonitoring":true,"azureAuth":{`+auth+`}}}`)
				}
				as := func(who Caller, status int) {
					t.Helper()
					w.caller = who
					w.must(status, "GET", nodeURL("n"), "")
				}
				put(201, before.auth)
				as(before.who, 200)
				as(after.who, 403)
				put(200, after.auth)
				as(before.who, 200)
				w.caller = after.who
				w.settles(200, "GET", nodeURL("n"), "", "x-ms-flexnode-trial: true")
				as(before.who, 200)
				w.refresh(t)
				as(after.who, 200)
				w.caughtUp()
				as(before.who, 403)
				as(after.who, 200)
			})
		}
	}
}

// A node that joins by token has no former identity: an empty one matches no caller.
func TestFromATokenToAnIdentity(t *testing.T) {
	w := newEdge(t)
	operator := w.caller
	w.must(201, "PUT", nodeURL("n"), withToken)
	w.settles(200, "PUT", nodeURL("n"), nodeOf(clientA, "x"))
	equal(t, "its former identity", w.storedNode("n").Former, "")
	w.caller = Caller{TenantID: tenant, Type: "Application"}
	w.must(403, "GET", nodeURL("n"), "")
	w.caller = identities["service principal"].who
	w.must(200, "GET", nodeURL("n"), "")
	w.caller = operator
	w.settles(200, "PUT", nodeURL("n"), withToken) // and back: it may still read that
	w.caller = identities["service principal"].who
	w.must(200, "GET", nodeURL("n"), "")
}

// refresh returns the configuration, and its version, that the node n gets for itself.
func (w *world) refresh(t *testing.T, headers ...string) (config.Config, string) {
	t.Helper()
	key := must(sealed.NewKey())
	body := string(must(json.Marshal(api.Refresh{PublicKey: key.Public()})))
	url := nodeURL("n", "/refreshCredentials")
	answer := reads[api.Refreshed](w, 200, "POST", url, body, headers...)
	n := w.storedNode("n")
	opened := must(key.Open(sealed.About{ID: cluster + "/flexNodeConfig/N", UID: n.UID},
		answer.EncapsulatedKey, answer.Ciphertext))
	b := decoded[api.Bundle](t, string(opened))
	if b.Resource.UID != n.UID || b.Resource.ConfigVersion != answer.ConfigVersion ||
		b.Resource.Epoch != 1 {
		t.Errorf("the bundle is of %+v", b.Resource)
	}
	loaded, err := config.Parse(opened, config.Host{HostName: "x", Arch: "amd64"})
	c := loaded.Config
	if err != nil {
		t.Fatalf("the agent does not take the bundle: %v\n%s", err, opened)
	}
	equal(t, "whether it expires", answer.Expires != nil, c.Azure.BootstrapToken != nil)
	return c, answer.ConfigVersion
}

// Only the sent key can read the answer; without a usable key, and for others, it is refused.
func TestRefreshIsSealed(t *testing.T) {
	w, i, ops := guarded(t)
	w.settles(201, "PUT", nodeURL("n"), nodeOf(clientA, "hush-hush"), ops)
	a := i.app(t, w, clientA)
	post := func(status int, body string) string {
		t.Helper()
		_, text := w.must(status, "POST", nodeURL("n", "/refreshCredentials"), body, a)
		return text
	}
	encoded := base64.StdEncoding.EncodeToString
	good := encoded(must(sealed.NewKey()).Public())
	w.must(403, "POST", nodeURL("n", "/refreshCredentials"), `{"publicKey":"`+good+`"}`, ops)
	post(200, `{"publicKey":"`+good+`","other":true}`) // of a newer agent
	text := post(200, `{"publicKey":"`+good+`"}`)
	lacks(t, "the answer", text, "hush", "config\"")
	for body, want := range map[string]string{
		"":                                  "InvalidRequestContent",
		"{}":                                "InvalidParameter",
		`{"publicKey":""}`:                  "InvalidParameter",
		`{"publicKey":"?"}`:                 "InvalidRequestContent",
		`{"publicKey":7}`:                   "InvalidRequestContent",
		`{"publicKey":"` + good[:40] + `"}`: "InvalidParameter",
		`{"publicKey":"` + encoded(make([]byte, 32)) + `"}`:               "InvalidParameter",
		`{"publicKey":"` + encoded(append(make([]byte, 31), 0x80)) + `"}`: "InvalidParameter",
	} {
		equal(t, body, code(post(400, body)), want)
	}
}

// The configuration to join with has the secret that enrols an Arc machine; the machine itself does
// not get it again, a previous identity does.
func TestRefreshAfterEnrolment(t *testing.T) {
	w, i, ops := guarded(t)
	w.must(201, "PUT", nodeURL("n"), nodeOf(clientB, "of the node"), ops)
	_, text := w.must(200, "PUT", nodeURL("n")+"&configUrl=true", `{"properties":{
		"continuousMonitoring":true,"kubernetesAuth":{"useAzureAuth":true},
		"azureAuth":{"method":"arc","arc":{"onboarding":{"clientId":"`+clientA+`",
			"clientSecret":"hush-hush"}}}}}`, ops)
	shown := shownNode(t, text)
	onboarding := shown.Properties.AzureAuth.Arc.Onboarding
	if strings.Contains(text, "hush") || onboarding == nil || onboarding.ClientID != clientA {
		t.Errorf("it shows %s", text)
	}
	_, bundle := w.must(200, "GET", path(shown.Properties.ConfigURL), "")
	has(t, "the bundle", bundle, "hush-hush")
	w.caughtUp()
	c, _ := w.refresh(t, i.app(t, w, clientB))
	equal(t, "the secret that a former identity enrols the machine with", c.Credentials().ClientSecret,
		"hush-hush")
	arc := i.claims(w.clock.Now(), "arc-app")
	arc["xms_mirid"] = strings.TrimSuffix(cluster, "/providers/"+flexnode.ClusterType+"/Factory") +
		"/providers/Microsoft.HybridCompute/machines/N"
	c, _ = w.refresh(t, "Authorization: Bearer "+i.sign(t, "one", arc))
	if sp := c.Azure.ServicePrincipal; sp == nil || sp.ClientID != clientA || sp.ClientSecret != "" {
		t.Errorf("the machine itself gets %+v", sp)
	}
	w.must(403, "GET", nodeURL("n"), "", i.app(t, w, clientA)) // it is not the node
}

// The present identity revokes what others may have; a former one, which is one of them, cannot.
func TestRefreshRevokesPrevious(t *testing.T) {
	w, i, ops := guarded(t)
	w.must(201, "PUT", nodeURL("n"), nodeOf(clientA, "first"), ops)
	made := w.node(200, "PUT", nodeURL("n")+"&configUrl=true", nodeOf(clientB, "second"), ops)
	url := path(made.Properties.ConfigURL)
	w.settles(200, "GET", url, "")
	former, present := i.app(t, w, clientA), i.app(t, w, clientB)
	body := `{"revokePrevious":true,"publicKey":"` +
		base64.StdEncoding.EncodeToString(must(sealed.NewKey()).Public()) + `"}`
	_, text := w.must(403, "POST", nodeURL("n", "/refreshCredentials"), body, former)
	equal(t, "the refusal of the former identity", code(text), "FormerIdentity")
	w.must(200, "GET", nodeURL("n"), "", former)
	w.must(200, "GET", url, "")
	w.settles(200, "POST", nodeURL("n", "/refreshCredentials"), body, present)
	w.must(403, "GET", nodeURL("n"), "", former)
	w.must(403, "GET", url, "")
	w.must(200, "GET", nodeURL("n"), "", present)
}

// A machine with a shared identity gets no bootstrap token for another node that runs.
func TestRefreshOfANodeThatRuns(t *testing.T) {
	w, i, ops := guarded(t)
	a := i.app(t, w, clientA)
	w.must(201, "PUT", nodeURL("n"), nodeOf(clientA, "hush"), ops)
	w.change(func(v *store.View) error {
		row, err := w.api.Store.Clusters.In(v, clusterKey)
		row.Value.Properties.Reachable = true
		return errors.Join(err, w.api.Store.Clusters.Put(v, clusterKey, row.Value),
			w.api.Store.Status.Put(v, clusterKey+"/n", flexnode.Status{
				Ready: &api.Condition{Type: flexnode.Ready, Status: "True"}}))
	})
	w.refresh(t, a) // no other node shares it
	w.settles(201, "PUT", nodeURL("other"), nodeOf(clientA, "hush"), ops)
	ask := func(status int, joined string) string {
		t.Helper()
		_, text := w.must(status, "POST", nodeURL("n", "/refreshCredentials"), `{"publicKey":"`+
			base64.StdEncoding.EncodeToString(must(sealed.NewKey()).Public())+`"`+joined+`}`, a)
		return text
	}
	equal(t, "the refusal", code(ask(503, "")), "CredentialNotReady")
	ask(200, `,"joined":true`)
	w.change(func(v *store.View) error {
		return w.api.Store.Status.Put(v, clusterKey+"/n", flexnode.Status{
			Ready: &api.Condition{Type: flexnode.Ready, Status: "Unknown"}})
	})
	ask(200, "")
}
