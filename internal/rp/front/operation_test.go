package front

import (
	"strings"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// The result of regenerateToken is given to callers that may read URLs now, regardless of the
// caller that has requested it, and is the URL that was asked for and no other.
func TestResultOfAnOperationIsASecret(t *testing.T) {
	w := beside(t)
	result := w.regenerateInVain()
	w.cluster.isDown.Store(false)
	w.until("the URL is live", func() bool { return w.do("GET", result, "").StatusCode == 200 })

	all := w.api.Authorizer
	w.api.Authorizer = Assignments{}
	_, text := w.must(403, "GET", result, "")
	if code(text) != "AuthorizationFailed" || strings.Contains(text, "sig=") {
		t.Error(text)
	}
	w.api.Authorizer = all
	w.must(200, "GET", result, "")

	w.api.Patience = 20 * time.Second
	w.must(200, "POST", nodeURL("n", "/regenerateToken"), "{}")
	w.refused(409, "NoConfigUrl", "GET", result, "")
	w.must(200, "DELETE", nodeURL("n"), "")
	w.must(201, "PUT", nodeURL("n")+"&configUrl=true", withToken)
	w.must(409, "GET", result, "")
}

// A cluster may be called providers: an operation on its node is not on something that is gone.
func TestOperationInAClusterCalledProviders(t *testing.T) {
	w := beside(t)
	at := strings.TrimSuffix(cluster, "Factory") + "providers"
	w.must(201, "PUT", at+versionQuery, `{"location":"westeurope","properties":{}}`)
	w.caughtUp()
	w.fails()
	r, _ := w.must(201, "PUT", at+"/flexNodeConfig/n"+versionQuery+"&configUrl=true", withToken)
	_, text := w.must(200, "GET", path(r.Header.Get("Azure-AsyncOperation")), "")
	if o := operationOf(t, text); o.Status != inProgress || o.Error != nil {
		t.Errorf("operation: %s", text)
	}
}

// What was done while the cluster was down is not the business of a node made since, of another
// subscription, or of who bends an id.
func TestOperationIDs(t *testing.T) {
	w := newEdge(t)
	w.fails()
	r, _ := w.must(201, "PUT", nodeURL("n")+"&configUrl=true", withToken)
	status := path(r.Header.Get("Azure-AsyncOperation"))
	_, text := w.must(200, "GET", strings.Replace(status, "/operationStatuses/",
		"/OPERATIONSTATUSES/", 1), "")
	if o := operationOf(t, text); o.Status != inProgress || o.Error != nil ||
		!strings.HasSuffix(o.ResourceID, "/n") || o.StartTime.IsZero() {
		t.Errorf("operation: %s", text)
	}
	w.must(404, "GET", strings.Replace(status, "/operationStatuses/", "/operationStatuses/a", 1), "")
	w.must(404, "GET", strings.Replace(status, subscription,
		"22222222-2222-3333-4444-555555555555", 1), "")
	w.must(400, "GET", strings.Replace(status, "/operationStatuses/", "/operationStatuses/1", 1), "")
	w.must(200, "DELETE", nodeURL("n"), "")
	w.must(201, "PUT", nodeURL("n")+"&configUrl=true", withToken)
	_, text = w.must(200, "GET", status, "")
	if operationOf(t, text).Status != api.Canceled {
		t.Errorf("operation: %s", text)
	}
	w.clock.Pass(8 * 24 * time.Hour)
	w.must(404, "GET", status, "")
}

// An equal PUT of what its cluster keeps waiting writes nothing, also no operation.
func TestEqualPutOfWhatWaitsWritesNothing(t *testing.T) {
	w := beside(t)
	w.fails()
	registration := `{"location":"westeurope","properties":{}}`
	w.must(201, "PUT", clusterURL, registration)
	w.must(201, "PUT", nodeURL("n"), withToken)
	before := must(w.memory.Health(t.Context())).Revision
	for range 3 {
		r, _ := w.must(200, "PUT", clusterURL, registration)
		w.must(200, "GET", path(r.Header.Get("Azure-AsyncOperation")), "")
		r, _ = w.must(200, "PUT", nodeURL("n"), withToken)
		w.must(200, "GET", path(r.Header.Get("Azure-AsyncOperation")), "")
	}
	if now := must(w.memory.Health(t.Context())).Revision; now != before {
		t.Errorf("equal PUTs have written %d times", now-before)
	}
}
