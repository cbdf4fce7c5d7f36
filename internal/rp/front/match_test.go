package front

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// exampleOf returns a path of a route.
func exampleOf(pattern string) string {
	return strings.NewReplacer("{subscription}", subscription, "{group}", "g", "{cluster}", "c",
		"{node}", "n", "{location}", "x", "{operation}", "o").Replace(pattern)
}

// U+017F folds to s and U+212A to k in Unicode, but not in ARM: no route has them.
func TestRoutesAreASCII(t *testing.T) {
	w := beside(t)
	other := strings.NewReplacer("s", "\u017f", "S", "\u017f", "k", "\u212a", "K", "\u212a")
	for _, r := range w.api.routes() {
		for i, s := range r.segments {
			if s[0] == '{' || other.Replace(s) == s {
				continue
			}
			segments := append([]string{}, r.segments...)
			segments[i] = url.PathEscape(other.Replace(s))
			path := exampleOf("/" + strings.Join(segments, "/"))
			for name, front := range map[string]http.Handler{"direct": w.front, "arm": w.manager} {
				got := w.send(front, r.method, path+versionQuery, "")
				equal(t, name+" "+r.method+" "+path, got.StatusCode, 404)
			}
		}
	}
}

// A denial for a group holds in any spelling that folds to it, a grant only as Azure compares.
func TestDenialsFoldMore(t *testing.T) {
	t.Parallel()
	at := func(group string) string { return "/subscriptions/s/resourceGroups/" + group + "/x/y" }
	deny := permission{scope: "/subscriptions/s/resourceGroups/caf\u00e9s"}
	for _, group := range []string{"caf\u00e9s", "CAF\u00c9S", "caf\u00e9\u017f"} {
		equal(t, group+" is denied", deny.at(at(group), true), true)
	}
	shows(t, "it is granted", "true false", deny.at(at("CAF\u00e9S"), false),
		deny.at(at("caf\u00e9\u017f"), false))
}

// FuzzScope checks that a routed path parses to a scope with its own names.
func FuzzScope(f *testing.F) {
	w := newWorld(f)
	for _, r := range w.api.routes() {
		f.Add(r.method, exampleOf(r.pattern))
	}
	f.Add("GET", strings.Replace(cluster, "resourceGroups", "re%C5%BFourceGroups", 1))
	f.Add("GET", strings.Replace(cluster, "Edge", "providers", 1)+"/flexNodeConfig/providers")
	l := w.api.listener(w.callers(), true)
	f.Fuzz(func(t *testing.T, method, path string) {
		hr, err := http.NewRequest(method, publicURL+"/"+strings.TrimLeft(path, "/"), nil)
		if err != nil {
			return
		}
		query, _ := lowerKeys(hr.URL.RawQuery)
		r := &request{Request: hr, listener: l, query: query}
		if l.match(r) != nil || l.api.checkNames(r) != nil {
			return
		}
		prefix, group := "", r.name("group")
		if s := r.name("subscription"); s != "" {
			prefix = "/subscriptions/" + s
		}
		if group != "" {
			prefix += "/resourceGroups/" + group
		}
		id, err := arm.Parse(r.scope())
		if err != nil || id.Subscription != r.name("subscription") ||
			id.ResourceGroup != group || !arm.Within(r.scope(), prefix) {
			t.Errorf("%s %s: %s is %+v, %v", method, path, r.scope(), id, err)
		}
		if r.route.action == "" && arm.Key(r.scope()) != arm.Key(hr.URL.Path) {
			t.Errorf("%s %s is asked for as %s", method, path, r.scope())
		}
	})
}

// A replica with an index that is behind writes nothing in a suspended subscription.
func TestASuspendedSubscriptionBehindTheIndex(t *testing.T) {
	w := newEdge(t)
	r, _ := w.settles(201, "PUT", nodeURL("n"), withToken)
	goOn := make(chan struct{})
	w.memory.Before(func(c storetest.Call) error {
		if c.Op == "changes" {
			<-goOn
		}
		return nil
	})
	defer close(goOn)
	w.send(w.manager, "PUT", subscriptionURL,
		`{"state":"Suspended","properties":{"tenantId":"`+tenant+`"}}`)
	equal(t, "the state in the index, behind", w.index.Subscription(subscription), "Registered")
	for _, url := range []string{nodeURL("n"), nodeURL("m")} {
		w.refused(409, "InvalidSubscriptionState", "PUT", url, larger)
	}
	w.must(409, "POST", nodeURL("n", "/regenerateToken"), "{}")
	equal(t, "the ETag", w.node(200, "GET", nodeURL("n"), "").ETag, r.Header.Get("ETag"))
}

// An operation without a credential has failed; released nodes cannot be wiped.
func TestOperationsThatFail(t *testing.T) {
	w := newEdge(t)
	w.must(201, "PUT", nodeURL("n"), withToken)
	const why = "a credential could not be made before it expired"
	w.edit("n", func(n *flexnode.Node) { n.Reason = why })
	node := w.storedNode("n")
	o, err := w.api.progress(t.Context(), flexnode.Operation{
		Kind: regenerateKind, Target: node.ID, UID: node.UID, State: inProgress})
	shows(t, "the operation", "Failed "+why+" <nil>", o.State, o.Message, err)
	l := w.api.listener(w.callers(), false)
	hr := httptest.NewRequest("DELETE", publicURL+clusterURL, nil)
	query, _ := lowerKeys(hr.URL.RawQuery)
	r := &request{Request: hr, listener: l, query: query, caller: w.caller}
	must(0, l.match(r))
	must(w.api.markDeletion(r, releaseNodes))
	must(w.api.markDeletion(r, releaseNodes))
	if _, err := w.api.markDeletion(r, wipeNodes); err == nil {
		t.Error("nodes that are released are said to be wiped")
	}
}

// FuzzRequest sends arbitrary requests: the answer is ARM's, and never an internal error.
func FuzzRequest(f *testing.F) {
	f.Add("GET", nodeURL("n"), "")
	f.Add("PUT", nodeURL("n"), withPrincipal)
	f.Add("PUT", nodeURL("n")+"&configUrl=true", withToken)
	f.Add("POST", nodeURL("n", "/reportStatus"), `{"conditions":[{"type":"A","status":"True"}]}`)
	f.Add("POST", nodeURL("n", "/reportStatus"), fullReport("7"))
	f.Add("POST", nodeURL("n", "/beginChange"), `{"configVersion":"7"}`)
	f.Add("PUT", nodeURL("n"), withPolicies)
	f.Add("POST", nodeURL("n", "/refreshCredentials"), `{"publicKey":"AAAA"}`)
	f.Add("GET", nodesURL+"&$top=1&$skipToken=x", "")
	f.Add("PUT", clusterURL,
		`{"location":"x","properties":{"podCidr":"10.0.0.0/8","nodeCidrMask":24}}`)
	f.Add("DELETE", "/subscriptions/%2e%2e/x?api-version=1", "\x00")
	f.Add("DELETE", clusterURL+"&dryRun=true&nodes=wipe", "")
	f.Add("GET", operationURL("00000000-0000-0000-0000-000000000001"), "")
	w := newWorld(f)
	w.register("")
	w.api.Patience = 100 * time.Millisecond
	f.Fuzz(func(t *testing.T, method, url, body string) {
		if strings.ContainsAny(method, " \r\n\t") || method == "" ||
			!strings.HasPrefix(url, "/") || strings.ContainsAny(url, " \r\n\t\x00\x7f") {
			return
		}
		r, err := http.NewRequest(method, publicURL+url, strings.NewReader(body))
		if err != nil || r.URL.Host != "provider.example" {
			return
		}
		r.Header.Set("Content-Type", "application/json")
		recorder := httptest.NewRecorder()
		w.front.ServeHTTP(recorder, r)
		if recorder.Code >= 500 {
			t.Fatalf("%d %s", recorder.Code, recorder.Body)
		}
		if recorder.Code >= 400 && code(recorder.Body.String()) == "" {
			t.Fatalf("no error of ARM: %d %s", recorder.Code, recorder.Body)
		}
	})
}
