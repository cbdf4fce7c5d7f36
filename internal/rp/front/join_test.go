package front

import (
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// identities are the ways in which a machine joins with an identity in Azure: azureAuth of its
// node, and who it is.
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

// The URL of a machine that joins with an identity dies with the first thing that the identity asks
// after a machine has fetched it, whatever that is, and not with what others ask.
func TestURLDiesWithTheFirstPoll(t *testing.T) {
	t.Parallel()
	for name, identity := range identities {
		for _, ask := range []string{"a poll", "a read", "a report", "a poll through ARM"} {
			t.Run(name+"/"+ask, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.register("")
				r, text := w.must(201, "PUT", nodeURL("n")+"&configUrl=true",
					`{"properties":{"continuousMonitoring":true,"azureAuth":{`+identity.auth+`},
						"kubernetesAuth":{"useAzureAuth":true}}}`)
				n := shownNode(t, text)
				url := path(n.Properties.ConfigURL)
				w.must(200, "GET", url, "")
				w.caughtUp()
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
					w.pollThroughManager(t, identity.who, same, n.Properties.ResourceUID)
				}
				w.must(403, "GET", url, "")
			})
		}
	}
}

// pollThroughManager polls the node n as an agent does that asks Resource Manager.
func (w *world) pollThroughManager(t *testing.T, c Caller, same, uid string) {
	t.Helper()
	r := w.send(w.manager, "GET", nodeURL("n"), "", same, "x-ms-flexnode-uid: "+uid,
		"x-ms-client-tenant-id: "+c.TenantID, "x-ms-client-app-id: "+c.AppID,
		"x-ms-client-object-id: "+c.ObjectID)
	if r.StatusCode != 304 {
		t.Fatalf("status %d: %s", r.StatusCode, readAll(t, r.Body))
	}
}

// From any identity to any other: both are the node until the new one has polled, and then the new
// one alone. A trial does not count: the node may go back to the former one.
func TestFromAnyIdentityToAnyOther(t *testing.T) {
	t.Parallel()
	for from, before := range identities {
		for to, after := range identities {
			if from == to || before.who.AppID == after.who.AppID && after.who.AppID == clientA {
				continue
			}
			t.Run(from+" to "+to, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.register("")
				operator := w.caller
				put := func(status int, auth string) {
					w.caller = operator
					w.must(status, "PUT", nodeURL("n"),
						`{"properties":{"continuousMonitoring":true,"azureAuth":{`+auth+`}}}`)
					w.caughtUp()
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
				w.must(200, "GET", nodeURL("n"), "", "x-ms-flexnode-trial: true")
				w.caughtUp()
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

// A node without an identity, which joins with a token only, has no former one when it gets one: an
// empty identity matches no caller.
func TestFromATokenToAnIdentity(t *testing.T) {
	w := newEdge(t)
	operator := w.caller
	w.must(201, "PUT", nodeURL("n"), withToken)
	w.must(200, "PUT", nodeURL("n"), nodeOf(clientA, "x"))
	w.caughtUp()
	if got := w.storedNode("n").Former; got != "" {
		t.Errorf("its former identity is %q", got)
	}
	w.caller = Caller{TenantID: tenant, Type: "Application"}
	w.must(403, "GET", nodeURL("n"), "")
	w.caller = identities["service principal"].who
	w.must(200, "GET", nodeURL("n"), "")
	w.caller = operator
	w.must(200, "PUT", nodeURL("n"), withToken) // and back: it may still read that
	w.caughtUp()
	w.caller = identities["service principal"].who
	w.must(200, "GET", nodeURL("n"), "")
}
