package front

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

const (
	clusterURL = cluster + versionQuery
	nodesURL   = cluster + "/flexNodeConfig" + versionQuery
)

func (w *world) storedCluster() flexnode.Cluster {
	return must(w.api.Store.Clusters.Get(w.t.Context(), clusterKey)).Value
}

// A registration is an operation that ends when the cluster was reached.
func TestRegistrationWaitsForTheCluster(t *testing.T) {
	w := beside(t)
	w.fails()
	r, text := w.must(201, "PUT", clusterURL, `{"location":"West Europe","properties":{}}`)
	has(t, "the answer", text, `"provisioningState":"Creating"`)
	status := asyncOf(r)
	has(t, "where to ask", status, "/locations/westeurope/operationStatuses/")
	id, _, _ := strings.Cut(status[strings.LastIndexByte(status, '/')+1:], "?")
	equal(t, "the id is a GUID, as Resource Manager wants", flexnode.IsGUID(id), true)
	equal(t, "the operation", w.operation(status).Status, inProgress)
	// Nodes may be made meanwhile; they are rendered when the cluster was reached.
	p := w.node(201, "PUT", nodeURL("n"), withToken).Properties
	shows(t, "its state, and whether it is rendered", "Creating false", p.ProvisioningState,
		p.Config != nil)
	w.cluster.isDown.Store(false)
	w.until("the operation ends", func() bool { return w.operation(status).Status == api.Succeeded })
	w.until("the node is rendered", func() bool { return w.storedNode("n").Revision != 0 })
	p = w.node(200, "GET", nodeURL("n"), "").Properties
	shows(t, "its state then", "Succeeded true", p.ProvisioningState, p.Config != nil)
}

// The owner of a refused registration sees the reason on every path, and may send it back (B2).
func TestRefusedRegistration(t *testing.T) {
	w := beside(t)
	w.fails()
	r, _ := w.must(201, "PUT", clusterURL, registration(""))
	const why = "The API server belongs to another registration already."
	edit(w, w.api.Store.Clusters, clusterKey, func(c *flexnode.Cluster) {
		c.Properties.ProvisioningState, c.Probe.Refused = api.Failed, why
	})
	o := w.operation(asyncOf(r))
	shows(t, "the operation", "Failed "+why, o.Status, o.Error.Message)
	_, shown := w.must(200, "GET", clusterURL, "")
	has(t, "the registration", shown, why)
	before := w.storedCluster()
	w.must(200, "PUT", clusterURL, shown)
	equal(t, "the version after a PUT of what was shown", w.storedCluster().Version, before.Version)
}

// A PUT that corrects the kubeconfig of a failed registration waits for the cluster; another is
// answered with the failure at once.
func TestFailedRegistrationIsCorrected(t *testing.T) {
	w := newEdge(t)
	edit(w, w.api.Store.Clusters, clusterKey, func(c *flexnode.Cluster) {
		c.Properties.ProvisioningState, c.Probe.Refused = api.Failed, "It is another's."
	})
	var reached sync.WaitGroup
	reached.Go(func() { // what its reconciler does then
		w.until("the kubeconfig is stored",
			func() bool { return w.storedCluster().Properties.Kubeconfig == "own" })
		time.Sleep(200 * time.Millisecond) // it finds the change a while later
		edit(w, w.api.Store.Clusters, clusterKey, func(c *flexnode.Cluster) {
			c.Properties.ProvisioningState, c.Probe.Refused = "", ""
		})
	})
	began := time.Now()
	put := func(rest string) string {
		return reads[api.ManagedCluster](w, 200, "PUT", clusterURL,
			`{"location":"westeurope",`+rest+`}`).Properties.ProvisioningState
	}
	equal(t, "the state after another change", put(`"tags":{"a":"b"},"properties":{}`), api.Failed)
	equal(t, "the state after the correction", put(`"properties":{"kubeconfig":"own"}`), api.Succeeded)
	if took := time.Since(began); took > w.api.Patience/2 {
		t.Errorf("both PUTs took %s", took)
	}
	reached.Wait()
}

// An equal PUT of a registration writes nothing; the pod network stays unchanged.
func TestEqualRegistration(t *testing.T) {
	w := newEdge(t)
	r, _ := w.must(200, "GET", clusterURL, "")
	before := w.revision()
	again, _ := w.must(200, "PUT", clusterURL, registration(""))
	equal(t, "the ETag after an equal PUT", again.Header.Get("ETag"), r.Header.Get("ETag"))
	equal(t, "the revision after an equal PUT", w.revision(), before)
	was := w.storedCluster()
	changed, _ := w.must(200, "PUT", clusterURL,
		`{"location":"westeurope","tags":{"a":"b"},"properties":{}}`)
	lacks(t, "the ETag after a change", changed.Header.Get("ETag"), r.Header.Get("ETag"))
	now := w.storedCluster()
	shows(t, "it is the same, with its facts", "true true", now.UID == was.UID, now.Facts != "")
}

// A kubeconfig that is bound to another cluster cannot be named (B2).
func TestKubeconfigOfAnother(t *testing.T) {
	w := beside(t)
	other := registration(`"kubeconfig":"other"`)
	w.refused(403, "KubeconfigNotBound", "PUT", clusterURL, other)
	has(t, "the audit log", w.audit.String(), "KubeconfigNotBound")
	w.must(404, "GET", clusterURL, "")
	w.register(`"kubeconfig":"own"`)
	w.must(403, "PUT", clusterURL, other)
	equal(t, "its kubeconfig", w.storedCluster().Properties.Kubeconfig, "own")
}

// DELETE of a registration with nodes is refused unless the caller chooses what happens to the
// machines; a dry run is possible, and it is an operation (M2, M5).
func TestDeleteCluster(t *testing.T) {
	w := newEdge(t)
	w.must(204, "DELETE", strings.Replace(clusterURL, "Factory", "None", 1)+"&dryRun=False", "")
	for _, name := range []string{"a", "b"} {
		w.must(201, "PUT", nodeURL(name), withToken)
	}
	w.settles(204, "POST", nodeURL("a", "/reportStatus"), `{"agentVersion":"1.0"}`)
	w.refused(409, "ClusterHasNodes", "DELETE", clusterURL, "", "has 2 flexNodeConfigs, 1 of")
	equal(t, "what a refused deletion has left", w.storedCluster().Deletion, nil)
	w.must(201, "PUT", nodeURL("c")+"&configUrl=true", withToken)
	for _, query := range []string{"burn", "release&dryRun=1", "release&dryRun=true;",
		"release&dryRun=false&DryRun=true"} {
		w.refused(400, "InvalidParameter", "DELETE", clusterURL+"&nodes="+query, "")
	}

	w.caughtUp() // the counts are the index's
	before := w.revision()
	found := reads[api.DeletionCounts](w, 200, "DELETE", clusterURL+"&nodes=wipe&dryRun=true", "")
	equal(t, "a dry run", found,
		api.DeletionCounts{DryRun: true, Nodes: 3, Joined: 1, Credentials: 1, Wipe: true})
	equal(t, "the revision after a dry run", w.revision(), before)

	w.refused(409, "ConfirmationNeeded", "DELETE", clusterURL+"&nodes=wipe", "", "confirm=3")
	w.must(409, "DELETE", clusterURL+"&nodes=wipe&confirm=2", "")
	w.must(412, "DELETE", clusterURL+"&nodes=wipe&confirm=3", "", `If-Match: "1"`)
	w.checkAborted()
	r, _ := w.must(202, "DELETE", clusterURL+"&nodes=release", "")
	equal(t, "the pause before the next question", r.Header.Get("Retry-After"), "10")
	w.checkLeaving(r.Header.Get("Azure-AsyncOperation"), r.Header.Get("Location"))
}

// checkAborted aborts the deletion of a registration: its nodes remain, until none is left.
func (w *world) checkAborted() {
	w.t.Helper()
	abort := strings.Replace(clusterURL, "?", "/abort?", 1)
	w.must(404, "POST", strings.Replace(abort, "Factory", "None", 1), "")
	w.refused(409, "NothingToAbort", "POST", abort, "")
	wipe := func(emptied bool) *http.Response {
		r, _ := w.must(202, "DELETE", clusterURL+"&nodes=wipe&confirm=3", "")
		edit(w, w.api.Store.Clusters, clusterKey, func(c *flexnode.Cluster) {
			c.Deletion.Emptied = emptied
		})
		w.refused(409, "Conflict", "DELETE", clusterURL+"&nodes=release", "", "POST abort")
		for _, same := range []string{"", "&nodes=wipe"} {
			again, _ := w.must(202, "DELETE", clusterURL+same, "")
			equal(w.t, "the operation of a second DELETE", again.Header.Get("Location"),
				r.Header.Get("Location"))
		}
		return r
	}
	wipe(true)
	w.refused(409, "TooLateToAbort", "POST", abort, "")
	edit(w, w.api.Store.Clusters, clusterKey, func(c *flexnode.Cluster) { c.Deletion = nil })
	r := wipe(false)
	w.must(204, "POST", abort, "")
	o := w.operation(asyncOf(r))
	shows(w.t, "the operation, and its error", "Canceled true", o.Status, o.Error != nil)
	w.settles(200, "PUT", nodeURL("a"), withToken)
}

// checkLeaving checks a registration that is being deleted, and its operation until it ends.
func (w *world) checkLeaving(status, result string) {
	t := w.t
	t.Helper()
	id := w.storedCluster().Deletion.Operation
	w.must(409, "DELETE", clusterURL+"&nodes=wipe", "") // its nodes are released
	again, _ := w.must(202, "DELETE", clusterURL+"&nodes=release", "")
	equal(t, "the operation of a second DELETE", again.Header.Get("Azure-AsyncOperation"), status)
	equal(t, "its nodes are wiped", w.storedCluster().Deletion.Wipe, false)
	for _, change := range []struct{ method, url, body string }{
		{"PUT", nodeURL("new"), withToken}, {"PUT", nodeURL("a"), withToken},
		{"POST", nodeURL("a", "/regenerateToken"), "{}"},
		{"PUT", clusterURL, registration("")},
	} {
		w.refused(409, "ClusterIsBeingDeleted", change.method, change.url, change.body)
	}
	w.must(200, "GET", nodeURL("a"), "")
	_, text := w.must(200, "GET", clusterURL, "")
	has(t, "the registration", text, `"provisioningState":"Deleting"`)
	status, result = path(status), path(result)
	o := w.operation(status) // its nodes have been counted
	shows(t, "the operation", inProgress+" 0 true", o.Status, *o.PercentComplete,
		strings.EqualFold(o.ResourceID, cluster))
	w.must(202, "GET", result, "")
	// The reconciler goes on, and ends it.
	set := func(state string, done int) {
		edit(w, w.api.Store.Operations, id, func(o *flexnode.Operation) {
			o.State, o.Total, o.Done = state, 3, done
		})
	}
	set(inProgress, 1)
	equal(t, "the percentage", *w.operation(status).PercentComplete, 33)
	set(api.Succeeded, 3)
	w.must(204, "GET", result, "")
}

// A node that is written while its registration is deleted is not acknowledged and then lost (M1).
func TestNodeIsMadeWhileItsClusterIsDeleted(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"read", "keys", "commit"} {
		w := newWorld(t)
		w.register("")
		status := 0
		put := func() { status = w.do("PUT", nodeURL("n"), `{"properties":{}}`).StatusCode }
		w.during(op, put)
		got := w.do("DELETE", clusterURL, "").StatusCode
		switch {
		case status == 201 && got == 409 && w.storedCluster().Deletion == nil:
		case status == 409 && got == 202 && w.storedCluster().Deletion != nil:
		default:
			t.Errorf("at %s: PUT %d, DELETE %d, %+v", op, status, got, w.storedCluster().Deletion)
		}
	}
}

// No registration is made in a subscription that is being deleted.
func TestRegistrationWhileTheSubscriptionIsDeleted(t *testing.T) {
	w := beside(t)
	w.during("commit", func() { w.send(w.manager, "PUT", subscriptionURL, `{"state":"Deleted"}`) })
	w.must(404, "PUT", clusterURL, registration(""))
}

// Another spelling of a registration's id or location changes nothing: no node is rendered again.
func TestRegistrationInOtherCasing(t *testing.T) {
	w := beside(t)
	w.must(201, "PUT", clusterURL, `{"location":"West Europe","properties":{}}`)
	before := w.storedCluster()
	equal(t, "the location", before.Location, "westeurope")
	other := strings.Replace(clusterURL, "resourceGroups/Edge", "resourcegroups/EDGE", 1)
	other = strings.Replace(other, "Factory", "FACTORY", 1)
	for _, location := range []string{"westeurope", "WestEurope", "west europe"} {
		w.must(200, "PUT", other, `{"location":"`+location+`","properties":{}}`)
		equal(t, location, w.storedCluster(), before)
	}
	for target, body := range map[string]string{
		"location": `{"location":"westus"`, "id": `{"location":"westeurope","id":"` + cluster + `2"`,
		"name": `{"location":"westeurope","name":"x"`, "type": `{"location":"westeurope","type":"x"`,
	} {
		w.refused(400, "InvalidParameter", "PUT", other, body+`,"properties":{}}`, target)
	}
	w.must(200, "PUT", other, `{"location":"westeurope","name":"factory","tags":{"a":"b"}}`)
	after := w.storedCluster()
	shows(t, "after a change of its tags", before.ID+" westeurope b", after.ID, after.Location,
		after.Tags["a"])
}

// The result of regenerateToken is given to callers that may read URLs now, also if another one
// requested it, and is the requested URL and no other.
func TestResultOfAnOperationIsASecret(t *testing.T) {
	w := beside(t)
	result := w.regenerateInVain()
	w.cluster.isDown.Store(false)
	w.until("the URL is live", func() bool { return w.do("GET", result, "").StatusCode == 200 })

	all := w.api.Authorizer
	w.api.Authorizer = Assignments{}
	_, text := w.must(403, "GET", result, "")
	equal(t, "without a role", code(text), "AuthorizationFailed")
	lacks(t, "the refusal", text, "sig=")
	w.api.Authorizer = all
	w.must(200, "GET", result, "")

	w.api.Patience = 20 * time.Second
	w.must(200, "POST", nodeURL("n", "/regenerateToken"), "{}")
	w.refused(409, "NoConfigUrl", "GET", result, "")
	w.must(200, "DELETE", nodeURL("n"), "")
	w.must(201, "PUT", nodeURL("n")+"&configUrl=true", withToken)
	w.must(409, "GET", result, "")
}

// An operation's id is invalid for a node made since, for another subscription, or when altered.
// The target of an operation on a node is also found in a cluster that is called providers.
func TestOperationIDs(t *testing.T) {
	w := newEdge(t)
	called := strings.NewReplacer("Factory", "providers")
	w.settles(201, "PUT", called.Replace(clusterURL), registration(""))
	w.fails()
	r, _ := w.must(201, "PUT", called.Replace(nodeURL("n"))+"&configUrl=true", withToken)
	there := w.operation(asyncOf(r))
	shows(t, "the operation in providers", inProgress+" <nil>", there.Status, there.Error)
	r, _ = w.must(201, "PUT", nodeURL("n")+"&configUrl=true", withToken)
	status := asyncOf(r)
	o := w.operation(strings.Replace(status, "/operationStatuses/", "/OPERATIONSTATUSES/", 1))
	node := o.ResourceID[strings.LastIndexByte(o.ResourceID, '/'):]
	shows(t, "the operation", inProgress+" <nil> /n true", o.Status, o.Error, node,
		!o.StartTime.IsZero())
	w.must(404, "GET", strings.Replace(status, "&o=", "&o=a", 1), "")
	w.must(404, "GET", status[:strings.Index(status, "&o=")], "")
	w.must(404, "GET", strings.Replace(status, subscription, secondSubscription, 1), "")
	w.must(400, "GET", strings.Replace(status, "/operationStatuses/", "/operationStatuses/1", 1), "")
	w.must(200, "DELETE", nodeURL("n"), "")
	w.must(201, "PUT", nodeURL("n")+"&configUrl=true", withToken)
	equal(t, "the operation", w.operation(status).Status, api.Canceled)
	w.clock.Pass(8 * 24 * time.Hour)
	w.must(404, "GET", status, "")
}

// An equal PUT of a node that waits for its cluster writes nothing, not even an operation.
func TestEqualPutOfWhatWaitsWritesNothing(t *testing.T) {
	w := beside(t)
	w.fails()
	w.must(201, "PUT", clusterURL, registration(""))
	w.must(201, "PUT", nodeURL("n"), withToken)
	before := w.revision()
	for range 3 {
		for url, body := range map[string]string{clusterURL: registration(""), nodeURL("n"): withToken} {
			r, _ := w.must(200, "PUT", url, body)
			w.must(200, "GET", asyncOf(r), "")
		}
	}
	equal(t, "the revision after equal PUTs", w.revision(), before)
}
