package front

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/Azure/AKSFlexNode/api/flexnode/sealed"
	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// A running agent whose identity is replaced reads the configuration with the new identity and gets
// the new secret; once the new identity was seen, the old one has no access (B5).
func TestIdentityIsReplaced(t *testing.T) {
	w, i, ops := guarded(t)
	w.settles(201, "PUT", nodeURL("n"), nodeOf(clientA, "first"), ops)
	old, fresh := i.app(w, clientA), i.app(w, clientB)
	r, _ := w.must(200, "GET", nodeURL("n"), "", old)
	w.must(403, "GET", nodeURL("n"), "", fresh)

	w.settles(200, "PUT", nodeURL("n"), nodeOf(clientB, "second"), ops)
	n := w.node(200, "GET", nodeURL("n"), "", old, "If-None-Match: "+r.Header.Get("ETag"))
	azure := shownConfig(t, n)["azure"].(map[string]any)
	equal(t, "the identity that the agent gets",
		azure["servicePrincipal"].(map[string]any)["clientId"], clientB)
	for who, token := range map[string]string{"the former": old, "the present": fresh} {
		c, version := w.refresh(t, token)
		shows(t, who+" identity gets", "second true "+w.desires("n"),
			c.Azure.ServicePrincipal.ClientSecret.Reveal(),
			c.Azure.BootstrapToken.Token.Reveal() != "", version)
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
	n := w.node(201, "PUT", nodeURL("n"), withOnboarding, as...)
	w.caughtUp()
	key, refresh := must(sealed.NewKey()), nodeURL("n", "/refreshCredentials")
	w.must(403, "POST", refresh, sealedFor(key), as...)
	as = append(as, uidHeader+": "+n.Properties.ResourceUID)
	w.must(403, "POST", refresh, sealedFor(key, `,"revokePrevious":true`), as...)
	answer := reads[api.Refreshed](w, 200, "POST", refresh, sealedFor(key), as...)
	bundle := string(must(key.Open(sealed.About{ID: n.ID, UID: n.Properties.ResourceUID},
		answer.EncapsulatedKey, answer.Ciphertext)))
	has(t, "what it gets", bundle, clientA)
	lacks(t, "what it gets", bundle, "hush", "enrolmentSecret")
	w.settles(200, "PUT", nodeURL("n"), `{"properties":{}}`, as...) // joins with a bootstrap token
	w.must(403, "POST", refresh, sealedFor(key), as...)
	w.must(200, "PUT", nodeURL("n"), withOnboarding, as...)
	w.settles(200, "DELETE", nodeURL("n"), "", as...)
	w.buried("GET", nodeURL("n"), "", as...)
	w.must(204, "POST", nodeURL("n", "/leave"), "{}", as...)
	w.must(403, "POST", nodeURL("n", "/leave"), sealedFor(key), as...)
	w.must(404, "POST", nodeURL("n", "/leave"), "{}", as[:2]...)
}

// withOnboarding is a node of an Arc machine, with the application that enrols it.
const withOnboarding = `{"properties":{"continuousMonitoring":true,
	"kubernetesAuth":{"useAzureAuth":true},"azureAuth":{"method":"arc",
		"arc":{"onboarding":{"clientId":"` + clientA + `","clientSecret":"hush-hush"}}}}}`

// sealedFor returns a request whose answer is sealed for a key, with more members.
func sealedFor(key *sealed.Key, more ...string) string {
	return `{"publicKey":"` + base64.StdEncoding.EncodeToString(key.Public()) + `"` +
		strings.Join(more, "") + "}"
}

// A node made again is another one: the former machine learns that its own is gone (M4).
func TestDeleteThenPutMakesTwoNodes(t *testing.T) {
	w, i, ops := guarded(t)
	former := w.node(201, "PUT", nodeURL("n"), nodeOf(clientA, "x"), ops)
	w.must(200, "DELETE", nodeURL("n"), "", ops)
	present := w.node(201, "PUT", nodeURL("n"), nodeOf(clientA, "x"), ops)
	w.caughtUp()
	a := i.app(w, clientA)
	of := func(n api.FlexNodeConfig) string {
		return uidHeader + ": " + strings.ToUpper(n.Properties.ResourceUID)
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
		was := w.api.Store.Nodes.Row(v, key).Value
		w.api.Store.Nodes.Delete(v, key)
		return w.api.Store.AddTombstone(v, key, flexnode.Tombstone{
			UID: was.UID, Identity: was.Identity, Revision: was.Revision, Deleted: w.clock.Now(),
		})
	})
	for _, header := range []string{"Accept: */*", uidHeader + ": " + n.Properties.ResourceUID} {
		_, text := w.must(404, "GET", nodeURL("n"), "", i.app(w, clientA), header)
		lacks(t, "with "+header, text, TombstoneInfo)
	}
}

// A poll of an unchanged node does not use the store; its time is noted.
func TestPollsLeaveTheStoreAlone(t *testing.T) {
	w, i, ops := guarded(t)
	r, _ := w.settles(201, "PUT", nodeURL("n"), nodeOf(clientA, "x"), ops)
	a := i.app(w, clientA)
	calls := w.calls()
	for range 3 {
		w.must(304, "GET", nodeURL("n"), "", a, "If-None-Match: "+r.Header.Get("ETag"))
	}
	equal(t, "the calls of three polls to the store", calls(""), 0)
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
			MachineID: arcMachine + "N"},
	},
}

// arcMachine is the id of an Arc machine in the cluster's group, without its name.
const arcMachine = "/subscriptions/" + subscription +
	"/resourceGroups/Edge/providers/Microsoft.HybridCompute/machines/"

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
						uidHeader+": "+n.Properties.ResourceUID,
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
	url := nodeURL("n", "/refreshCredentials")
	answer := reads[api.Refreshed](w, 200, "POST", url, sealedFor(key), headers...)
	n := w.storedNode("n")
	opened := must(key.Open(sealed.About{ID: cluster + "/flexNodeConfig/N", UID: n.UID},
		answer.EncapsulatedKey, answer.Ciphertext))
	b := decoded[api.Bundle](t, string(opened))
	shows(t, "the bundle is of", n.UID+" "+answer.ConfigVersion+" 1", b.Resource.UID,
		b.Resource.ConfigVersion, b.Resource.Epoch)
	c := must(config.Parse(opened, config.Host{HostName: "x", Arch: "amd64"})).Config
	equal(t, "whether it expires", answer.Expires != nil, c.Azure.BootstrapToken != nil)
	return c, answer.ConfigVersion
}

// Only the sent key can read the answer; without a usable key, and for others, it is refused.
func TestRefreshIsSealed(t *testing.T) {
	w, i, ops := guarded(t)
	w.settles(201, "PUT", nodeURL("n"), nodeOf(clientA, "hush-hush"), ops)
	a := i.app(w, clientA)
	post := func(status int, body string) string {
		t.Helper()
		_, text := w.must(status, "POST", nodeURL("n", "/refreshCredentials"), body, a)
		return text
	}
	encoded := base64.StdEncoding.EncodeToString
	key := must(sealed.NewKey())
	w.must(403, "POST", nodeURL("n", "/refreshCredentials"), sealedFor(key), ops)
	post(200, sealedFor(key, `,"other":true`)) // of a newer agent
	lacks(t, "the answer", post(200, sealedFor(key)), "hush", "config\"")
	for body, want := range map[string]string{
		"":                  "InvalidRequestContent",
		"{}":                "InvalidParameter",
		`{"publicKey":""}`:  "InvalidParameter",
		`{"publicKey":"?"}`: "InvalidRequestContent",
		`{"publicKey":7}`:   "InvalidRequestContent",
		`{"publicKey":"` + encoded(key.Public())[:40] + `"}`:              "InvalidParameter",
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
	_, text := w.must(200, "PUT", nodeURL("n")+"&configUrl=true", withOnboarding, ops)
	lacks(t, "the node", text, "hush")
	shown := shownNode(t, text).Properties
	equal(t, "the application", shown.AzureAuth.Arc.Onboarding.ClientID, clientA)
	_, bundle := w.must(200, "GET", path(shown.ConfigURL), "")
	has(t, "the bundle", bundle, "hush-hush")
	w.caughtUp()
	c, _ := w.refresh(t, i.app(w, clientB))
	equal(t, "the secret that a former identity enrols the machine with", c.Credentials().ClientSecret,
		"hush-hush")
	c, _ = w.refresh(t, i.bearer(w, "arc-app", jwt.MapClaims{"xms_mirid": arcMachine + "N"}))
	sp := c.Azure.ServicePrincipal
	shows(t, "the machine itself gets", clientA+" true", sp.ClientID, sp.ClientSecret == "")
	w.must(403, "GET", nodeURL("n"), "", i.app(w, clientA)) // it is not the node
}

// The present identity revokes what others may have; a former one, which is one of them, cannot.
func TestRefreshRevokesPrevious(t *testing.T) {
	w, i, ops := guarded(t)
	w.must(201, "PUT", nodeURL("n"), nodeOf(clientA, "first"), ops)
	made := w.node(200, "PUT", nodeURL("n")+"&configUrl=true", nodeOf(clientB, "second"), ops)
	url := path(made.Properties.ConfigURL)
	w.settles(200, "GET", url, "")
	former, present := i.app(w, clientA), i.app(w, clientB)
	body := sealedFor(must(sealed.NewKey()), `,"revokePrevious":true`)
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
	a := i.app(w, clientA)
	w.must(201, "PUT", nodeURL("n"), nodeOf(clientA, "hush"), ops)
	edit(w, w.api.Store.Clusters, clusterKey, func(c *flexnode.Cluster) {
		c.Properties.Reachable = true
	})
	ready := func(status string) {
		edit(w, w.api.Store.Status, clusterKey+"/n", func(s *flexnode.Status) {
			s.Ready = &api.Condition{Type: flexnode.Ready, Status: status}
		})
	}
	ready("True")
	w.refresh(t, a) // no other node shares it
	w.settles(201, "PUT", nodeURL("other"), nodeOf(clientA, "hush"), ops)
	ask := func(status int, joined string) string {
		t.Helper()
		_, text := w.must(status, "POST", nodeURL("n", "/refreshCredentials"),
			sealedFor(must(sealed.NewKey()), joined), a)
		return text
	}
	equal(t, "the refusal", code(ask(503, "")), "CredentialNotReady")
	ask(200, `,"joined":true`)
	ready("Unknown")
	ask(200, "")
}
