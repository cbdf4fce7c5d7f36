package front

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/api/flexnode/sealed"
	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/machinekey/machinekeytest"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// issued issues a certificate to the machine that joined with an enrolment secret.
func (w *world) issued(id, secret string) {
	n := w.storedNode("n")
	enrolment, _, _ := strings.Cut(secret, ".")
	edit(w, w.api.Store.Certificates, clusterKey+"/n", func(c *flexnode.Certificates) {
		*c = c.Note(flexnode.Certificate{ID: id, Ends: w.clock.Now().Add(time.Hour), UID: n.UID,
			Enrolment: enrolment}, "", true, w.clock.Now())
	})
}

// certificates returns the row with the certificates of the node n.
func (w *world) certificates() store.Row[flexnode.Certificates] {
	return must(w.api.Store.Certificates.Get(w.t.Context(), clusterKey+"/n"))
}

// listed returns the only certificates that may write as a node after some time; "all" for any.
func (w *world) listed(after time.Duration) string {
	ids, alone := w.certificates().Value.May(w.clock.Now().Add(after))
	if !alone {
		return "all"
	}
	return strings.Join(ids, " ")
}

// now makes a request revoke at once.
func now(url string) string { return url + "&revokeNow=true" }

// accepting makes a PUT create a node whose former machine has not left.
func accepting(url string) string { return url + "&acceptOldCertificate=true" }

type deletion struct {
	Cleanup struct {
		CertificateRevokedFrom, CertificateExpires *time.Time
		RoleAssignmentToRemove                     *struct{ Scope, Assignee string }
	}
}

// A deleted node may write until it has had time to leave, or not at all.
func TestDeletionRevokes(t *testing.T) {
	w, _ := newMachine(t)
	w.issued("a", w.enrolment(t, "n"))
	_, text := w.must(200, "DELETE", nodeURL("n"), "")
	until := w.clock.Now().Add(flexnode.LeaveTime).Truncate(time.Second)
	d := decoded[deletion](t, text).Cleanup
	shows(t, "it is revoked then, and expires later", "true true",
		d.CertificateRevokedFrom.Equal(until), d.CertificateExpires.After(until))
	equal(t, "who may write after the deletion", w.listed(0), "all")
	equal(t, "who may write later", w.listed(flexnode.LeaveTime), "")
	w.must(204, "DELETE", now(nodeURL("n")), "")
	equal(t, "who may write after a second deletion", w.listed(0), "")
	w.settles(201, "PUT", accepting(nodeURL("n")), "{}")
	w.issued("b", w.enrolment(t, "n"))
	w.must(204, "DELETE", now(nodeURL("gone")), "")
	equal(t, "who of the successor may write", w.listed(0), "b")
	w.must(200, "DELETE", now(nodeURL("n")), "")
	equal(t, "who may write after its deletion", w.listed(0), "")
	w.must(201, "PUT", nodeURL("fresh"), "{}")
	_, text = w.must(200, "DELETE", now(nodeURL("fresh")), "")
	lacks(t, "the answer for a node that no machine was", text, "certificateRevoked")
}

// A machine that was wiped or released before the deletion of the cluster was aborted can be shut
// out, also if it said that it left. One without a certificate does not hold its name.
func TestShutOutAfterAnAbort(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		joins, leaves bool
		may, then     string // who may write, at first and once a successor has joined
		made          int    // the status of a PUT of the name
	}{
		"joined":  {joins: true, then: "b", made: 409},
		"left":    {joins: true, leaves: true, then: "b", made: 409},
		"without": {may: "all", then: "all", made: 201},
	} {
		t.Run(name, func(t *testing.T) {
			w, m := newMachine(t)
			if test.joins {
				m.joins(t, "a")
			} else { // its kubelet used tokens, and it left
				edit(w, w.api.Store.Certificates, clusterKey+"/n", func(c *flexnode.Certificates) {
					c.Leaving = "another"
				})
			}
			if test.leaves {
				m.post(t, 204, "/leave", "{}")
			}
			w.caughtUp()
			w.must(202, "DELETE", clusterURL+"&nodes=wipe&confirm=1", "")
			w.change(func(v *store.View) error { // as the cluster's owner does
				return w.api.Credentials.RemoveNode(v, clusterKey+"/n", true, w.clock.Now())
			})
			w.must(204, "POST", strings.Replace(clusterURL, "?", "/abort?", 1), "")
			equal(t, "who may write", w.listed(flexnode.LeaveTime), "all")
			w.must(204, "DELETE", now(nodeURL("n")), "")
			equal(t, "who may write after revokeNow", w.listed(0), test.may)
			w.settles(test.made, "PUT", nodeURL("n"), "{}")
			w.do("PUT", accepting(nodeURL("n")), "{}")
			w.machineOf("n").joins(t, "b")
			equal(t, "who may write beside a successor", w.listed(0), test.then)
		})
	}
}

// A machine leaves with its key: its Node, not a successor's, is deleted, and it may not write.
func TestMachineLeaves(t *testing.T) {
	w, m := newMachine(t)
	const what = "how many Nodes were deleted, and who may write"
	m.joins(t, "a")
	w.machineOf("n").post(t, 401, "/leave", "{}")
	m.post(t, 204, "/leave", "{}")
	shows(t, what, "1 all", w.cluster.nodesGone.Load(), w.listed(0))
	w.settles(200, "DELETE", nodeURL("n"), "")
	w.machineOfUID("n", m.said.UID).post(t, 401, "/leave", "{}")
	m.post(t, 204, "/leave", "{}")
	shows(t, what+", of a deleted node", "2 ", w.cluster.nodesGone.Load(), w.listed(0))
	w.settles(201, "PUT", nodeURL("n"), "{}")
	w.issued("b", w.enrolment(t, "n"))
	w.change(func(v *store.View) error { _, err := w.api.Store.RaiseEpoch(v); return err })
	m.post(t, 204, "/leave", "{}")
	shows(t, what+", beside a successor", "2 b", w.cluster.nodesGone.Load(), w.listed(0))
	equal(t, "the epoch of what the cluster lists", w.certificates().Value.Epoch, 1)
	w.fails()
	w.settles(200, "DELETE", nodeURL("n"), "")
	equal(t, "while the cluster is down", m.post(t, 503, "/leave", "{}"), "NodeNotDeleted")
	w.cluster.isDown.Store(false)
	w.until("the Node to be deleted", func() bool { return w.cluster.nodesGone.Load() == 3 })
}

// The previous machine may not write once its successor has registered its key, or at once.
func TestSuccessorRevokes(t *testing.T) {
	w, first := newMachine(t)
	first.joins(t, "a")
	fresh := w.enrolment(t, "n")
	first.registers(t, 204, "")
	equal(t, "who may write before the successor has registered", w.listed(0), "all")
	w.issued("b", fresh)
	second := w.machineOf("n")
	second.registers(t, 204, fresh)
	equal(t, "who may write with a successor", w.listed(0), "b")
	equal(t, "Nodes that were deleted while a machine is the node", w.cluster.nodesGone.Load(), 0)
	w.settles(200, "POST", now(nodeURL("n", "/regenerateToken")), "")
	w.until("the Node to be deleted", func() bool { return w.cluster.nodesGone.Load() == 1 })
	second.poll(t, 401)
	equal(t, "who may write after regenerateToken with revokeNow", w.listed(0), "")
}

// A machine that replaces its own key keeps the certificate that its kubelet proves, also one that
// a restored store lacks, and needs no bootstrap token, unless it was shut out.
func TestMachineReplacesItsKey(t *testing.T) {
	pair, leaf := machinekeytest.NewCA().Kubelet("n", false)
	own := flexnode.CertificateID(leaf.Raw)
	for name, want := range map[string]string{"known": own, "unknown": own, "shut out": ""} {
		t.Run(name, func(t *testing.T) {
			w, first := newMachine(t)
			secret := w.enrolment(t, "n")
			first.registers(t, 204, secret)
			if name == "known" {
				w.issued(own, secret)
			}
			w.issued("lost", secret)
			if want == "" {
				w.settles(200, "POST", now(nodeURL("n", "/regenerateToken")), "")
			}
			fresh := w.enrolment(t, "n")
			w.machineOf("n").registersAsKubelet(t, 204, fresh, pair)
			equal(t, "who may write", w.listed(0), want)
			made := must(w.api.Store.Credentials.Get(t.Context(), w.storedNode("n").Credential))
			equal(t, "its token is usable", made.Value.State == store.Live, want == "")
			latest := w.clock.Now().Add(flexnode.LongestCertificate)
			equal(t, "until later", w.certificates().Value.Ends.After(latest), false)
		})
	}
}

// A name is free once its machine has left, or its certificates have expired; otherwise a caller
// who makes a node of that name must accept them.
func TestNameIsFreeAgain(t *testing.T) {
	w, m := newMachine(t)
	m.joins(t, "a")
	remade := func(status int, url string) {
		t.Helper()
		_, text := w.settles(status, "PUT", url, "{}")
		if status == 409 { // the refusal has the date and the way out
			has(t, "the refusal", text, `"NameNotFree"`, "acceptOldCertificate=true",
				w.clock.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		}
	}
	w.settles(200, "DELETE", nodeURL("n"), "")
	remade(409, nodeURL("n"))
	m.post(t, 204, "/leave", "{}")
	remade(201, nodeURL("n"))

	second := w.machineOf("n")
	second.joins(t, "b")
	w.settles(200, "DELETE", nodeURL("n"), "")
	m.post(t, 204, "/leave", "{}") // it is not the machine that has to
	remade(409, nodeURL("n"))
	remade(201, accepting(nodeURL("n")))

	same := w.machineOf("n")
	same.key = second.key
	same.joins(t, "c")
	w.settles(200, "DELETE", nodeURL("n"), "")
	remade(409, nodeURL("n"))
	same.post(t, 204, "/leave", "{}") // with the credentials of the old node
	remade(201, nodeURL("n"))

	w.issued("d", w.enrolment(t, "n"))
	w.settles(200, "DELETE", nodeURL("n"), "")
	remade(409, nodeURL("n"))
	w.clock.Pass(time.Hour)
	remade(201, nodeURL("n"))

	type step = func(*machine)
	leaves := func(m *machine) { m.post(t, 204, "/leave", "{}") }
	deleted := func(*machine) { w.settles(200, "DELETE", nodeURL("n"), "") }
	shutOut := func(status int) step {
		return func(*machine) { w.settles(status, "DELETE", now(nodeURL("n")), "") }
	}
	for i, steps := range [][]step{
		{shutOut(200), leaves}, {leaves, shutOut(200), leaves}, {deleted, leaves, shutOut(204)},
	} {
		stolen := w.machineOf("n") // its word does not count
		stolen.joins(t, "stolen"+strconv.Itoa(i))
		for _, does := range steps {
			does(stolen)
		}
		remade(409, nodeURL("n"))
		w.clock.Pass(time.Hour)
		remade(201, nodeURL("n"))
	}
}

// A machine that returns and does not leave holds the name with its former certificates.
func TestNameOfAMachineThatReturned(t *testing.T) {
	w, m := newMachine(t)
	m.joins(t, "a")
	w.must(200, "DELETE", nodeURL("n"), "")
	w.settles(201, "PUT", accepting(nodeURL("n")), "{}")
	again := w.machineOf("n")
	again.key = m.key
	again.registers(t, 204, w.enrolment(t, "n"))
	w.must(200, "DELETE", nodeURL("n"), "")
	w.settles(409, "PUT", nodeURL("n"), "{}")
	again.post(t, 204, "/leave", "{}")
	w.must(201, "PUT", nodeURL("n"), "{}")
}

// A machine that has left before the provider has seen its certificate does not hold the name.
func TestNameOfAnUnseenMachine(t *testing.T) {
	w, m := enrolled(t)
	m.post(t, 204, "/reportStatus", "{}")
	m.post(t, 204, "/leave", "{}")
	w.settles(200, "DELETE", nodeURL("n"), "")
	w.must(201, "PUT", nodeURL("n"), "{}")
}

// The Node of a machine whose kubelet uses tokens is deleted too when the machine is shut out.
func TestShutOutWithToken(t *testing.T) {
	w, _ := newMachine(t)
	w.must(200, "PUT", nodeURL("n"), withTokens)
	w.must(200, "POST", now(nodeURL("n", "/regenerateToken")), "")
	equal(t, "there are certificates of no machine", w.certificates().Exists(), false)
	w.settles(204, "POST", nodeURL("n", "/reportStatus"), "{}")
	w.must(200, "POST", now(nodeURL("n", "/regenerateToken")), "")
	w.until("the Node to be deleted", func() bool { return w.cluster.nodesGone.Load() == 1 })
}

// withTokens is a node whose kubelet uses tokens.
var withTokens = strings.Replace(joins(clientA), `true`, `true,"kubeletCredential":"token"`, 1)

// A machine that joins while it is shut out gets no certificate: its token is revoked.
func TestShutOutWhileItJoins(t *testing.T) {
	w := newEdge(t)
	w.settles(201, "PUT", nodeURL("n")+"&configUrl=true", "{}")
	key := w.storedNode("n").Credential
	edit(w, w.api.Store.Credentials, key, func(c *store.Credential) { c.State = store.Consumed })
	w.must(200, "POST", now(nodeURL("n", "/regenerateToken")), "")
	shows(t, "its credential is consumed, and what joins", "false []",
		must(w.api.Store.Credentials.Get(t.Context(), key)).Value.State == store.Consumed,
		w.storedNode("n").Joining)
}

// A machine that was shut out does not become the node again by the node's identity in Azure: it
// gets no credential and registers no key, until the owner's new URL registers a machine.
func TestShutOutHasAnIdentity(t *testing.T) {
	w, i, ops := guarded(t)
	a := i.app(w, clientA)
	w.must(201, "PUT", nodeURL("n"), nodeOf(clientA, "hush"), ops)
	m := w.machineOf("n")
	m.registersAs(t, 204, a)
	w.settles(200, "POST", now(nodeURL("n", "/regenerateToken")), "", ops)
	equal(t, "a registration by the identity", m.registersAs(t, 409, a), "SecondMachine")
	w.must(403, "POST", nodeURL("n", "/refreshCredentials"), sealedFor(must(sealed.NewKey())), a)
	r := w.send(w.manager, "POST", nodeURL("n", "/refreshCredentials"),
		sealedFor(must(sealed.NewKey())), "x-ms-client-tenant-id: "+tenant,
		"x-ms-client-app-id: "+clientA)
	equal(t, "its credentials through Resource Manager", r.StatusCode, 403)
	equal(t, "with its key", m.poll(t, 401), "MachineKeyNotRegistered")
	next := w.machineOf("n")
	next.registers(t, 204, w.enrolment(t, "n", ops))
	equal(t, "the node's key", w.storedNode("n").MachineKey, next.key.Thumbprint())
	next.poll(t, 200)
}

// The identity of a machine that is replaced or shut out is not the node's any more.
func TestIdentityOfAReplacedMachine(t *testing.T) {
	w := newEdge(t)
	w.settles(201, "PUT", nodeURL("n"), `{"properties":{"azureAuth":{"method":"managedIdentity"},
		"kubernetesAuth":{"useAzureAuth":true}}}`)
	joins := func(principal string) {
		t.Helper()
		w.machineOf("n").post(t, 204, "/registerKey",
			`{"enrolmentSecret":"`+w.enrolment(t, "n")+`","principalId":"`+principal+`"}`)
		w.caughtUp()
		equal(t, "the node joins as", w.storedNode("n").Principal, principal)
	}
	joins(clientA)
	joins("") // reported before kubelet starts
	joins(clientB)
	w.must(200, "POST", now(nodeURL("n", "/regenerateToken")), "")
	equal(t, "the node of a machine that was shut out joins as", w.storedNode("n").Principal, "")
}

// No certificate of a kubelet that uses tokens is revoked: its owner removes the role, which is not
// one that the machine names.
func TestDeletionNamesTheRole(t *testing.T) {
	const certificate = `,"kubeletCredential":"certificate"`
	arc := func(credential string) string {
		return `{"properties":{"kubernetesAuth":{"useAzureAuth":true` + credential +
			`},"azureAuth":{"method":"arc","arc":{"autoRoleAssignment":true}}}}`
	}
	group, _, _ := strings.Cut(strings.ToLower(cluster), "/providers/")
	machine := group + "/providers/microsoft.hybridcompute/machines/n"
	const claim = `{"principalId":"` + clientB + `"}`
	for name, tt := range map[string]struct {
		before, body, operator, want string
	}{
		"chosen": {before: joins(clientA), want: clientA,
			body: strings.Replace(joins(clientA), `true`, `true,"kubeletCredential":"token"`, 1)},
		"implied by automatic roles": {before: arc(certificate), body: arc(""), want: machine},
		"a certificate is chosen":    {before: arc(""), body: arc(certificate)},
		"the operator's default": {before: arc(""), body: arc(""),
			operator: config.CredentialCertificate},
	} {
		t.Run(name, func(t *testing.T) {
			w, m := enrolled(t)
			if tt.operator != "" {
				w.api.Defaults = flexnode.DefaultsLayer(map[string]any{
					"azure": map[string]any{"kubeletCredential": tt.operator}})
			}
			w.settles(200, "PUT", nodeURL("n"), tt.before)
			m.post(t, 204, "/registerKey", claim)
			w.settles(200, "PUT", nodeURL("n"), tt.body)
			m.post(t, 204, "/registerKey", claim)
			equal(t, "it joins as", w.storedNode("n").Principal, clientB)
			shown := must(w.api.Store.Kept(t.Context(), must(w.api.Store.History.Get(t.Context(),
				clusterKey+"/n")).Value, w.storedNode("n").Assigned))
			credential := shown["azure"].(map[string]any)["kubeletCredential"]
			equal(t, "kubelet shows a token", credential == config.CredentialToken, tt.want != "")
			w.settles(204, "POST", nodeURL("n", "/reportStatus"), "{}")
			_, text := w.settles(200, "DELETE", nodeURL("n"), "")
			d := decoded[deletion](t, text).Cleanup
			role, again := d.RoleAssignmentToRemove, 409
			if role != nil {
				equal(t, "the role assignment", role.Scope+" "+role.Assignee, cluster+" "+tt.want)
				again = 201
			}
			if named := role != nil; named != (tt.want != "") || named == (d.CertificateExpires != nil) {
				t.Errorf("the answer: %s", text)
			}
			w.must(again, "PUT", nodeURL("n"), "{}")
		})
	}
}

// arcLeft returns the Arc machines that deleted nodes have left.
func (w *world) arcLeft() []api.ArcMachineLeft {
	w.t.Helper()
	return reads[api.Summary](w, 200, "POST", summarizeURL, "").ArcMachinesLeft
}

// The machine of a deleted Arc node gets the secret that enrolled it, until it has left Arc; a copy
// that was refused cannot leave.
func TestArcMachineOfADeletedNode(t *testing.T) {
	w := newEdge(t)
	key := must(sealed.NewKey())
	ask := sealedFor(key)
	joined := func() *machine {
		w.settles(201, "PUT", nodeURL("n"), withOnboarding)
		m := w.machineOf("n")
		m.registers(t, 204, w.enrolment(t, "n"))
		return m
	}
	m := joined()
	m.post(t, 404, "/leave", ask)
	m.poll(t, 200)
	copied := m.copiedBefore(t)
	copied.poll(t, 409)
	w.settles(200, "DELETE", nodeURL("n"), "")
	for range 2 {
		for _, body := range []string{ask, "{}", `{"arc":{}}`} {
			equal(t, "the copy leaves", copied.post(t, 409, "/leave", body), "SecondMachine")
		}
		copied.boots()
	}
	is := w.arcLeft()
	shows(t, "what is left after the deletion", "1 n true", len(is), is[0].Node, is[0].Problem == "")
	has(t, "the Arc machine", is[0].MachineID, "/machines/n")
	w.machineOfUID("n", m.said.UID).post(t, 401, "/leave", ask)
	answer := reads[api.LeaveSecret](w, 200, "POST", nodeURL("n", "/leave"), ask,
		m.binds("POST", "/leave", ask))
	secret := must(key.Open(sealed.About{ID: m.path(""), UID: m.said.UID}, answer.EncapsulatedKey,
		answer.Ciphertext))
	equal(t, "the secret", string(secret), "hush-hush")
	m.post(t, 204, "/leave", `{"arc":{"problem":"AuthorizationFailed"}}`)
	is = w.arcLeft()
	shows(t, "what is left after it could not leave", "1 AuthorizationFailed", len(is), is[0].Problem)
	told := strings.Count(w.audit.String(), "an Arc machine is left")
	m.post(t, 204, "/leave", `{"arc":{}}`)
	m.post(t, 204, "/leave", `{"arc":{}}`)
	equal(t, "how often the audit log has it as left",
		strings.Count(w.audit.String(), "an Arc machine is left"), told)
	equal(t, "what is left after it has left", len(w.arcLeft()), 0)
	equal(t, "after it has left", m.post(t, 404, "/leave", ask), "NoOnboardingSecret")

	m.post(t, 204, "/leave", "{}")
	again := joined()
	again.post(t, 204, "/leave", `{"arc":{}}`)
	w.settles(200, "DELETE", now(nodeURL("n")), "")
	equal(t, "a machine that is shut out", again.post(t, 404, "/leave", ask), "NoOnboardingSecret")
	again.post(t, 204, "/leave", `{"arc":{}}`) // who has it may say so
	equal(t, "what is left of it", len(w.arcLeft()), 1)
	again = joined()
	w.must(200, "DELETE", nodeURL("n"), "")
	w.must(204, "DELETE", now(nodeURL("n")), "")
	again.post(t, 204, "/leave", `{"arc":{}}`)
	joined().post(t, 204, "/reportStatus", "{}") // no caller can ask for its secret
	w.must(200, "POST", now(nodeURL("n", "/regenerateToken")), "")
	w.must(200, "DELETE", nodeURL("n"), "")
	rows, _, err := w.api.Store.ArcLeft.List(t.Context(), "")
	for _, row := range rows {
		equal(t, "the secret of "+row.Key+" is kept", row.Value.Secret != nil, false)
	}
	shows(t, "the rows", "3 <nil>", len(rows), err)
}

// An Arc machine that has left before its node was deleted is not listed.
func TestArcMachineThatHasLeftBefore(t *testing.T) {
	w := newEdge(t)
	for name, want := range map[string]int{"same": 0, "replaced": 1} {
		w.settles(201, "PUT", nodeURL(name), `{"properties":{"kubernetesAuth":{"useAzureAuth":true},
			"azureAuth":{"method":"arc"}}}`)
		m := w.machineOf(name)
		m.registers(t, 204, w.enrolment(t, name))
		before := len(w.arcLeft())
		m.post(t, 204, "/leave", `{"arc":{}}`)
		if name == "replaced" {
			w.settles(200, "POST", nodeURL(name, "/regenerateToken"), "")
			w.machineOf(name).registers(t, 204, w.enrolment(t, name))
		}
		w.settles(200, "DELETE", nodeURL(name), "")
		equal(t, name+" that are left", len(w.arcLeft())-before, want)
	}
}

// A machine that a failed change has enrolled with Azure Arc is listed when it reports that.
func TestArcMachineOfAFailedChange(t *testing.T) {
	w := newEdge(t)
	w.settles(201, "PUT", nodeURL("n"), "{}")
	m := w.machineOf("n")
	m.registers(t, 204, w.enrolment(t, "n"))
	w.settles(200, "DELETE", nodeURL("n"), "")
	const group = "/subscriptions/" + subscription + "/resourceGroups/rg"
	const id = group + "/providers/Microsoft.HybridCompute/machines/n"
	leaves := func(id string) {
		m.post(t, 204, "/leave", `{"arc":{"problem":"AuthorizationFailed","machineResourceId":"`+id+`"}}`)
	}
	for _, wrong := range []string{"?", "/", group, id + `\n\u001b[2J`,
		group + "/providers/Microsoft.ContainerService/managedClusters/prod"} {
		leaves(wrong)
		equal(t, "what is left with the id "+wrong, len(w.arcLeft()), 0)
	}
	leaves(id)
	is := w.arcLeft()
	shows(t, "what is left", "1 "+id+" true", len(is), is[0].MachineID, !is[0].DeletedAt.IsZero())
}
