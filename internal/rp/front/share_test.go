package front

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/machinekey"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/rptest"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

const callerHeader = "X-Test-Caller"

// asNamed authenticates callers by a header: the machine of withManaged, or a person of that name.
func asNamed(r *http.Request) (Caller, error) {
	name := r.Header.Get(callerHeader)
	if name == "machine" {
		return Caller{ObjectID: name, TenantID: tenant, Type: "Application", AppID: principal}, nil
	}
	return Caller{ObjectID: name, TenantID: tenant, Type: "User"}, nil
}

// shared returns a world with the node n of withManaged, its ETag, and limited callers.
func shared(t *testing.T, rates fair.Rates, atOnce fair.AtOnce) (w *world, etag string) {
	t.Helper()
	w = newEdge(t)
	r, _ := w.settles(201, "PUT", nodeURL("n"), withManaged)
	w.share(rates, atOnce)
	return w, "If-None-Match: " + r.Header.Get("ETag")
}

// share limits the world's callers.
func (w *world) share(rates fair.Rates, atOnce fair.AtOnce) {
	w.api.Gate = fair.NewGate(atOnce)
	w.api.Throttle = fair.NewThrottle(rates, nil, w.clock.Now)
	w.api.Authorizer = Assignments{
		{PrincipalID: "operator", Scope: "/", Actions: []string{"*"}},
		{PrincipalID: "script", Scope: "/", Actions: []string{"*"}},
	}
	w.front = w.api.Direct(authenticate(asNamed))
}

// ask sends a request of a caller.
func (w *world) ask(
	caller, method, url, body string, headers ...string,
) *httptest.ResponseRecorder {
	return w.serve(method, url, body, append(headers, callerHeader+": "+caller)...)
}

// gets sends a caller's request and checks the status of the answer.
func (w *world) gets(
	status int, caller, method, url, body string, headers ...string,
) *httptest.ResponseRecorder {
	w.t.Helper()
	got := w.ask(caller, method, url, body, headers...)
	if got.Code != status {
		w.t.Errorf("%s: %s %s: %d %s, want %d", caller, method, url, got.Code, got.Body, status)
	}
	return got
}

func at(burst int, perSecond float64) fair.Rate {
	return fair.Rate{Burst: burst, PerSecond: perSecond}
}

const remainingHeader = "X-Ms-Ratelimit-Remaining-Resource"

// A caller with too many requests gets an error with the time to retry; others are answered.
func TestThrottling(t *testing.T) {
	w, same := shared(t, fair.Rates{
		fair.Principal: {
			fair.Reads: at(3, .3), fair.Lists: at(1, 1), fair.Writes: at(2, 1), fair.Deletes: at(1, 1),
		},
		fair.Subscription: {fair.Reads: at(100, 100)},
		fair.Node:         {fair.All: at(50, 10)},
	}, fair.AtOnce{})
	for _, tt := range []struct {
		method, url, body string
		wants             []int
	}{
		{"GET", nodeURL("n"), "", []int{200, 200, 200, 429}},
		{"GET", nodesURL, "", []int{200, 429}},
		{"PUT", nodeURL("n"), withManaged, []int{200, 200, 429}},
		{"DELETE", nodeURL("m"), "", []int{204, 429}},
	} {
		for _, want := range tt.wants {
			w.gets(want, "script", tt.method, tt.url, tt.body)
		}
	}
	refused := w.gets(429, "script", "GET", nodeURL("n"), "")
	shows(t, "the refusal", "TooManyRequests TooManyRequests true", code(refused.Body.String()),
		refused.Header().Get("x-ms-error-code"),
		must(strconv.Atoi(refused.Header().Get("Retry-After"))) >= 4)
	has(t, "the refusal", refused.Body.String(), "Please try again after '4' seconds")
	const reads, all = namespace + "/FlexNodeReads;", namespace + "/FlexNodeSubscriptionReads;"
	equal(t, "what remains", refused.Header()[remainingHeader], []string{reads + "0"})
	got := w.gets(200, "operator", "GET", nodeURL("n"), "")
	equal(t, "what remains for another caller", got.Header()[remainingHeader],
		[]string{reads + "2", all + "96"})
	for range 50 {
		got := w.gets(304, "machine", "GET", nodeURL("n"), "", same)
		equal(t, "what remains for a poll", got.Header()[remainingHeader], nil)
	}
	w.gets(429, "machine", "GET", nodeURL("n"), "", same)
	w.clock.Pass(4 * time.Second)
	w.gets(200, "script", "GET", nodeURL("n"), "")
	lacks(t, "the audit log", w.audit.String(), `"status":429`)
}

// The load of a node on the store is limited separately, and no other caller takes its share.
func TestReportsAreThrottled(t *testing.T) {
	w, _ := shared(t, fair.Rates{fair.Node: {
		fair.All: at(100, 1), fair.Refreshes: at(2, .1), fair.Reports: at(3, 1), fair.Stored: at(500, 50),
	}}, fair.AtOnce{})
	w.gets(201, "operator", "PUT", nodeURL("m"), withManaged)
	w.caughtUp()
	for _, caller := range []string{"operator", "machine"} {
		for action, burst := range map[string]int{"/reportStatus": 3, "/refreshCredentials": 2} {
			for n := range burst + 2 {
				got := w.ask(caller, "POST", nodeURL("n", action), "{}")
				equal(t, fmt.Sprintf("%s of %s, number %d is refused", action, caller, n),
					got.Code == http.StatusTooManyRequests, n >= burst)
			}
		}
	}
	w.gets(204, "machine", "POST", nodeURL("m", "/reportStatus"), "{}")
	w.gets(400, "machine", "POST", nodeURL("m", "/refreshCredentials"), "{}") // no key
	w.gets(200, "machine", "GET", nodeURL("n"), "")
}

// A request that costs as much as a list counts as one.
func TestKinds(t *testing.T) {
	w := beside(t)
	want := map[string]fair.Kind{
		"GET " + inNode: fair.Reads, "GET " + inNodes: fair.Lists, "GET " + inCluster: fair.Reads,
		"GET " + inClusters: fair.Lists, "GET " + inProvider + "/managedClusters": fair.Lists,
		"GET " + inOperations + "/usages": fair.Lists, "GET " + inProvider: fair.Reads,
		"GET /providers/" + namespace + "/operations":            fair.Reads,
		"GET " + inOperations + "/operationStatuses/{operation}": fair.Reads,
		"GET " + inOperations + "/operationResults/{operation}":  fair.Reads,
		"POST " + inNode + "/listHistory":                        fair.Lists,
		"POST " + inNode + "/diff":                               fair.Lists,
		"POST " + inNode + "/listDiagnosis":                      fair.Lists,
		"POST " + inCluster + "/summarizeFlexNodes":              fair.Lists,
		"DELETE " + inNode:                                       fair.Deletes,
		"DELETE " + inCluster:                                    fair.Deletes,
	}
	classes := map[fair.Kind]fair.Class{
		fair.Reads: fair.ForReads, fair.Lists: fair.ForLists, fair.Writes: fair.ForWrites,
		fair.Deletes: fair.ForWrites,
	}
	for _, route := range w.api.routes() {
		name := route.method + " " + route.pattern
		kind := cmp.Or(want[name], fair.Writes)
		delete(want, name)
		r := &request{Request: &http.Request{Method: route.method}, route: &route}
		shows(t, name, fmt.Sprint(kind, " ", classes[kind]), r.kind(), r.class())
	}
	equal(t, "routes that are not there", len(want), 0)
}

// Resource Manager's requests about a subscription are never refused, and do not count for callers.
func TestManagerIsNotThrottled(t *testing.T) {
	w := newEdge(t)
	rates := fair.Rates{
		fair.Principal: {fair.Writes: at(3, .001)}, fair.Subscription: {fair.Writes: at(20, .001)},
	}
	w.share(rates, fair.AtOnce{})
	w.api.Throttle = fair.NewThrottle(rates, map[string]float64{"script": 7}, w.clock.Now)
	for range 10 {
		w.tell(`{"state":"Registered"}`)
	}
	for n := range 20 {
		w.gets(201, "script", "PUT", nodeURL(fmt.Sprint("n", n)), withManaged)
	}
}

// Strangers do not use up the limits of a subscription's callers, or get more by naming others.
func TestStrangersTakeFromNobody(t *testing.T) {
	w, _ := shared(t, fair.Rates{
		fair.Principal:    {fair.Reads: at(5, .001)},
		fair.Subscription: {fair.Reads: at(4, .001)},
	}, fair.AtOnce{})
	for n := range 10 {
		other := fmt.Sprintf("%08d%s", n, subscription[8:])
		url := strings.Replace(nodeURL("n"), subscription, other, 1)
		w.gets(map[bool]int{true: 403, false: 429}[n < 5], "stranger", "GET", url, "")
		w.ask("another", "GET", nodeURL("n"), "")
		w.ask("third", "GET", providerURL, "")
	}
	for n := range 5 {
		w.gets(map[bool]int{true: 200, false: 429}[n < 4], "operator", "GET", nodeURL("n"), "")
	}
}

// Behind Resource Manager a caller is the node if it has its identity and names its uid.
func TestWhoIsTheNodeBehindManager(t *testing.T) {
	w := newEdge(t)
	w.settles(201, "PUT", nodeURL("n"), withManaged)
	offered := w.desires("n")
	w.report("n", offered, "")
	w.settles(200, "PUT", nodeURL("n"), strings.Replace(withManaged, "50", "60", 1)) // not offered yet
	w.share(fair.Rates{
		fair.Principal: {fair.Reads: at(1000, 1)}, fair.Node: {fair.All: at(1000, 1)},
	}, fair.AtOnce{})
	uid := uidHeader + ": " + w.storedNode("n").UID
	for _, tt := range []struct {
		name, app, uid string
		// want is the status, whether it counts as the node's, and whether the node was heard of.
		want string
	}{
		{"its identity and uid", principal, uid, "200 true true"},
		{"its uid alone", clientB, uid, "200 false false"},
		{"its identity alone, as of a pipeline", principal, "Accept: */*", "200 false false"},
		{"its identity, and the uid of another", principal, uidHeader + ": " + subscription,
			"404 false false"},
	} {
		w.api.Seen = &fakeSeen{}
		got := w.send(w.manager, "GET", nodeURL("n"), "", tt.uid, "x-ms-client-app-id: "+tt.app,
			"x-ms-client-tenant-id: "+tenant)
		shows(t, tt.name, tt.want, got.StatusCode, got.Header[remainingHeader] == nil,
			!w.api.Seen.Last(clusterKey+"/n").IsZero())
		if text := readAll(got.Body); got.StatusCode == 200 {
			equal(t, tt.name+": gets what is offered",
				shownNode(t, text).Properties.ConfigVersion == offered, tt.uid == uid)
		}
	}
}

// While all places of a class are taken, only its own requests are refused.
func TestPlaces(t *testing.T) {
	one := fair.Places{InFlight: 1, Wait: time.Second}
	w, same := shared(t, nil, fair.AtOnce{one, one, one, one, one})
	for class, request := range map[fair.Class][]string{
		fair.ForNodes:     {"machine", "GET", nodeURL("n"), "", same},
		fair.ForNodeStore: {"machine", "POST", nodeURL("n", "/reportStatus"), "{}"},
		fair.ForReads:     {"operator", "GET", nodeURL("n"), ""},
		fair.ForLists:     {"operator", "GET", nodesURL, ""},
		fair.ForWrites:    {"operator", "PUT", nodeURL("n"), withManaged},
	} {
		refused := func() bool {
			return w.ask(request[0], request[1], request[2], request[3], request[4:]...).Code == 429
		}
		for _, other := range fair.Classes() {
			place := must(w.api.Gate.Enter(context.Background(), other, ""))
			equal(t, fmt.Sprintf("%s, while those of %s are taken, is refused", class, other), refused(),
				other == class)
			place.Leave()
		}
		equal(t, fmt.Sprintf("%s: a place was lost", class), refused(), false)
	}
}

// A PUT that waits for its cluster takes no place.
func TestWaitingTakesNoPlace(t *testing.T) {
	w := newEdge(t)
	w.share(nil, fair.AtOnce{fair.ForWrites: {InFlight: 1, Wait: time.Second}})
	w.cluster.isDown.Store(true)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		w.gets(201, "operator", "PUT", nodeURL("slow")+"&configUrl=true", withToken)
	})
	w.until("the PUT waits", func() bool {
		rows, _, err := w.api.Store.Credentials.List(context.Background(), clusterKey+"/")
		taken, _ := w.api.Gate.Load(fair.ForWrites)
		return err == nil && len(rows) == 1 && rows[0].Value.State == store.Pending && taken == 0
	})
	w.gets(201, "operator", "PUT", nodeURL("fast"), withToken)
	w.cluster.isDown.Store(false)
	waiting.Wait()
	taken, _ := w.api.Gate.Load(fair.ForWrites)
	equal(t, "places that were lost", taken, 0)
}

// unread is the connection of a client that does not read its answer until end.
type unread struct {
	*httptest.ResponseRecorder
	begun, end chan struct{}
}

func (u unread) Write(b []byte) (int, error) {
	close(u.begun)
	<-u.end
	return u.ResponseRecorder.Write(b)
}

// An answer that its client does not read takes no place from others.
func TestUnreadAnswerTakesNoPlace(t *testing.T) {
	w := newEdge(t)
	w.settles(201, "PUT", nodeURL("n"), withToken)
	one := fair.Places{InFlight: 1, Wait: time.Millisecond}
	w.share(nil, fair.AtOnce{fair.ForReads: one, fair.ForLists: one})
	for _, url := range []string{nodeURL("n"), nodesURL} {
		slow := unread{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
		r := rptest.Request("GET", url, "", callerHeader+": operator")
		var reading sync.WaitGroup
		reading.Go(func() { w.front.ServeHTTP(slow, r) })
		<-slow.begun
		w.gets(200, "operator", "GET", url, "")
		close(slow.end)
		reading.Wait()
		equal(t, "the status of the slow one", slow.Code, 200)
	}
}

// While the store does not answer, reports wait for it and polls are answered.
func TestPollsWhileTheStorePauses(t *testing.T) {
	w, same := shared(t, nil, fair.DefaultAtOnce())
	w.memory.Pause()
	ctx, giveUp := context.WithCancel(context.Background())
	var asking sync.WaitGroup
	for i := range 300 { // reports, and polls without an ETag
		method, url := "POST", nodeURL("n", "/reportStatus")
		if i%3 == 0 {
			method, url = "GET", nodeURL("n")
		}
		r := rptest.Request(method, url, "{}", callerHeader+": machine").WithContext(ctx)
		asking.Go(func() { w.front.ServeHTTP(httptest.NewRecorder(), r) })
	}
	w.until("all of them wait", func() bool {
		taken, waiting := w.api.Gate.Load(fair.ForNodeStore)
		return taken == 64 && waiting == 300-64
	})
	began := time.Now()
	for range 10 {
		w.gets(304, "machine", "GET", nodeURL("n"), "", same)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("ten polls took %s", took)
	}
	giveUp()
	w.memory.Resume()
	asking.Wait()
}

// Nodes' requests to the store are limited together; polls that are answered from memory are not.
func TestNodesShareABucketForTheStore(t *testing.T) {
	w := newEdge(t)
	etag := w.do("PUT", nodeURL("n0"), withManaged).Header.Get("ETag")
	for i := range 60 {
		w.settles(201, "PUT", nodeURL(fmt.Sprintf("n%d", i+1)), withManaged)
	}
	w.share(fair.DefaultRates(), fair.DefaultAtOnce())
	refused := 0
	for i := range 600 { // ten of each, of twenty that each may send
		got := w.ask("machine", "POST", nodeURL(fmt.Sprintf("n%d", i%60), "/reportStatus"),
			fmt.Sprintf(`{"agentVersion":"%d"}`, i))
		if got.Code == 429 {
			refused++
		} else if got.Code != 204 {
			t.Fatalf("%d %s", got.Code, got.Body)
		}
	}
	equal(t, "reports of 600 that are refused", refused, 100)
	w.gets(429, "machine", "GET", nodeURL("n0"), "") // needs the store
	w.gets(304, "machine", "GET", nodeURL("n0"), "", "If-None-Match: "+etag)
	w.gets(200, "operator", "DELETE", nodeURL("n0"), "")
}

// A machine that invents boots writes few of them to the store, and takes nothing from other nodes.
func TestBootsAreThrottled(t *testing.T) {
	w, m := enrolled(t)
	rates := fair.DefaultRates()
	rates[fair.Node][fair.Stored] = at(20, .001)
	w.api.Throttle = fair.NewThrottle(rates, nil, w.clock.Now)
	before, last := w.index.Revision(), 0
	same := "If-None-Match: " + w.storedNode("n").ETag()
	for range 30 {
		m.boots()
		last = w.do("GET", nodeURL("n"), "", same, m.signs(machinekey.Request{})).StatusCode
	}
	w.caughtUp()
	equal(t, "the writes", w.index.Revision()-before, 3)
	equal(t, "the last answer", last, 429)
	w.clock.Pass(10 * time.Minute)
	m.poll(t, 200)
}

// A configuration URL is answered ten times at once, and then refused with 429.
func TestConfigurationURLsAreBounded(t *testing.T) {
	w := newEdge(t)
	n := w.node(201, "PUT", nodeURL("n")+"&configUrl=true", withToken)
	link := path(n.Properties.ConfigURL)
	w.share(fair.DefaultRates(), fair.DefaultAtOnce())
	w.handout.Admit = w.api.AdmitDelivery
	often := 0
	w.handout.Delivered = func(_, _ string, is bool, _ *http.Request) {
		if is {
			often++
		}
	}
	for range 10 {
		w.must(200, "GET", link, "")
	}
	r, _ := w.must(429, "GET", link, "")
	equal(t, "it tells when to retry", r.Header.Get("Retry-After") != "", true)
	w.must(403, "GET", strings.Replace(link, "sig=", "sig=x", 1), "")
	for range 11 {
		w.clock.Pass(10 * time.Second)
		w.must(200, "GET", link, "")
	}
	equal(t, "deliveries of 21 that are often", often, 1)
	w.api.Gate = fair.NewGate(fair.AtOnce{fair.ForNodeStore: {InFlight: 1, Wait: time.Second}})
	w.clock.Pass(10 * time.Second)
	place := must(w.api.Gate.Enter(context.Background(), fair.ForNodeStore, ""))
	w.must(429, "GET", link, "")
	place.Leave()
}

const usagesURL = ownProvider + "/locations/westeurope/usages" + versionQuery

// A subscription cannot exceed its quotas; the error has its usage and the contact for more.
func TestQuotas(t *testing.T) {
	w := newEdge(t)
	w.api.Quotas = fair.Quotas{
		Default:       fair.Quota{Nodes: 1, Clusters: 1, Tokens: 1},
		Subscriptions: map[string]fair.Quota{strings.ToUpper(subscription): {Nodes: 2}},
		Contact:       "edge-team@example.com",
	}
	refused := func(method, url, body, resource string) {
		t.Helper()
		w.refused(409, "QuotaExceeded", method, url, body, resource+" quota", "edge-team@example.com")
	}
	w.must(201, "PUT", nodeURL("a"), withToken)
	w.must(201, "PUT", nodeURL("b")+"&configUrl=true", withToken)
	refused("PUT", nodeURL("c"), withToken, "FlexNodes")
	refused("PUT", nodeURL("a")+"&configUrl=true", withToken, "FlexNodeTokens")
	refused("POST", nodeURL("a", "/regenerateToken"), "{}", "FlexNodeTokens")
	refused("PUT", strings.Replace(clusterURL, "Factory", "Other", 1), registration(""),
		"FlexNodeClusters")
	// What is there can be changed, and a token be replaced.
	w.must(200, "PUT", nodeURL("a"), strings.Replace(withToken, "prod", "test", 1))
	w.must(200, "POST", nodeURL("b", "/regenerateToken"), "{}")
	w.settles(200, "PUT", clusterURL, `{"location":"westeurope","tags":{"a":"b"}}`)
	_, text := w.must(200, "GET", usagesURL, "")
	has(t, "the usages", text, `{"value":[{"unit":"Count","name":{"value":"FlexNodes",`+
		`"localizedValue":"Flex nodes"},"currentValue":2,"limit":2},`,
		`"FlexNodeClusters","localizedValue":"Target clusters of flex nodes"},"currentValue":1,`+
			`"limit":1}`, `machine has used"},"currentValue":1,"limit":1}`)
	// What was deleted makes room.
	w.settles(200, "DELETE", nodeURL("b"), "")
	w.must(201, "PUT", nodeURL("c")+"&configUrl=true", withToken)
}

// A subscription may not create ever new nodes and clusters, or change facts of clusters: former
// ones leave rows in the store that no quota counts. Nodes, tags and policies can be changed.
func TestNewNamesAreBounded(t *testing.T) {
	w := newEdge(t)
	w.share(fair.Rates{fair.Subscription: {
		fair.Kind(fair.Nodes): at(2, .01), fair.Kind(fair.Clusters): at(1, .01)}}, fair.AtOnce{})
	w.api.Quotas = fair.Quotas{Default: fair.Quota{Nodes: 10, Clusters: 10}}
	for _, name := range []string{"a", "b"} {
		w.gets(201, "operator", "PUT", nodeURL(name), withToken)
		w.gets(200, "operator", "DELETE", nodeURL(name), "")
	}
	w.gets(429, "operator", "PUT", nodeURL("c"), withToken)
	w.clock.Pass(100 * time.Second)
	w.gets(201, "operator", "PUT", nodeURL("a"), withToken)
	w.gets(200, "operator", "PUT", nodeURL("a"), strings.Replace(withToken, "prod", "test", 1))
	for i, want := range []int{200, 201, 429} {
		name := []string{"Factory", "Other", "Third"}[i]
		url := strings.Replace(clusterURL, "Factory", name, 1)
		w.gets(want, "operator", "PUT", url, registration(""))
	}
	for body, want := range map[string]int{
		`{"location":"westeurope","tags":{"a":"b"}}`:        200,
		registration(`"rolloutPolicy":{"paused":true}`):     200,
		registration(`"serverUrl":"https://other.example"`): 429,
		registration(`"dnsServiceIP":"10.0.0.11"`):          429,
	} {
		w.gets(want, "operator", "PUT", clusterURL, body)
	}
	w.gets(429, "operator", "DELETE", clusterURL+"&nodes=release", "")
}

// A subscription may not replace credentials without end: while its cluster does not answer, each
// stays a day. A retry gets the same one, which does not count. A machine can always be shut out.
func TestNewCredentialsAreBounded(t *testing.T) {
	w := newEdge(t)
	w.share(fair.Rates{fair.Subscription: {fair.Kind(fair.Tokens): at(5, .01)}}, fair.AtOnce{})
	w.api.Quotas.Default.Tokens = 1
	w.fails()
	withURL := nodeURL("a") + "&configUrl=true"
	w.gets(201, "operator", "PUT", withURL, withToken)
	for range 10 {
		w.gets(200, "operator", "PUT", withURL, withToken)
	}
	again := now(nodeURL("a", "/regenerateToken"))
	for i := range 6 {
		w.gets(map[bool]int{true: 202, false: 429}[i < 3], "operator", "POST", again, "{}")
		if i == 1 {
			w.gets(200, "operator", "PUT", withURL, strings.Replace(withToken, "prod", "test", 1))
		}
	}
	rows := must(w.api.Store.Credentials.Keys(t.Context(), clusterKey+"/"))
	equal(t, "the credentials", len(rows), 5)
	for name, machine := range map[string]func(*flexnode.Node){
		"registered": func(n *flexnode.Node) { n.MachineKey = "key" },
		"joining":    func(n *flexnode.Node) { n.Joining = rows[:1] },
	} {
		edit(w, w.api.Store.Nodes, clusterKey+"/a", machine)
		equal(t, name, w.ask("operator", "POST", again, "{}").Code, 202)
		equal(t, name+", again", w.ask("operator", "POST", again, "{}").Code, 429)
	}
	// A machine that has joined has used its credential, and others have used up the quota.
	w.gets(201, "operator", "PUT", nodeURL("b"), withToken)
	edit(w, w.api.Store.Nodes, clusterKey+"/b", func(n *flexnode.Node) { n.MachineKey = "key" })
	w.caughtUp()
	shutOut := nodeURL("b", "/regenerateToken")
	has(t, "the refusal", w.ask("operator", "POST", shutOut, "{}").Body.String(), "QuotaExceeded")
	w.gets(202, "operator", "POST", now(shutOut), "{}")
	equal(t, "the key of its machine", w.storedNode("b").MachineKey, flexnode.ShutOut)
	w.api.Quotas.Default.Nodes = 6000 // doubles the rate
	w.gets(429, "operator", "POST", again, "{}")
	w.clock.Pass(50 * time.Second)
	w.gets(202, "operator", "POST", again, "{}")
}

// A subscription whose nodes take too many bytes may grow nothing, but shrink everything.
func TestQuotaOfBytes(t *testing.T) {
	w := newEdge(t)
	w.settles(201, "PUT", nodeURL("a"), withToken)
	w.isFull()
	for _, name := range []string{"a", "b"} {
		w.refused(409, "QuotaExceeded", "PUT", nodeURL(name), larger, "FlexNodeBytes quota")
	}
	w.must(200, "PUT", nodeURL("a"), withToken)
	w.must(200, "PUT", nodeURL("a"), strings.Replace(withToken, "prod", "x", 1))
	// A rollback may not grow it either.
	w.api.Quotas.Default.Bytes = 0
	first := versionOf(w.node(200, "PUT", nodeURL("a"), withToken).Properties.ConfigVersion)
	w.settles(200, "PUT", nodeURL("a"), strings.Replace(withToken, "prod", "x", 1))
	w.isFull()
	w.refused(409, "QuotaExceeded", "POST", nodeURL("a", "/rollback"), first, "FlexNodeBytes quota")
	_, text := w.must(200, "GET", usagesURL, "")
	has(t, "the usages", text, `{"unit":"Bytes","name":{"value":"FlexNodeBytes",`)
}

// The same for a node that has no revision yet, since its cluster was never reached.
func TestQuotaOfBytesWithoutARevision(t *testing.T) {
	w := beside(t)
	w.fails()
	w.register("")
	w.settles(201, "PUT", nodeURL("a"), withToken)
	w.isFull()
	w.refused(409, "QuotaExceeded", "PUT", nodeURL("a"), larger, "FlexNodeBytes quota")
}

// larger is withToken with some more bytes.
var larger = strings.Replace(withToken, "prod", "production", 1)

// isFull makes the used bytes of the subscription its quota.
func (w *world) isFull() {
	used, _ := w.index.Used(subscription)
	w.api.Quotas.Default.Bytes = used.Bytes
}

// A page of a list ends after half a megabyte.
func TestPagesEndByBytes(t *testing.T) {
	w := newEdge(t)
	const all = 1000
	var node flexnode.Node
	node.Desired.NodeConfig.Labels = map[string]string{"x": strings.Repeat("y", 8<<10)}
	for i := range all {
		w.changeOnly(func(v *store.View) error {
			return w.api.Store.Nodes.Set(v, fmt.Sprintf("%s/n%03d", clusterKey, i), node)
		})
	}
	w.caughtUp()
	nodes, next, err := w.api.listed(clusterKey, "", all, flexnode.Filter{})
	size := 0
	for _, n := range nodes {
		size += len(n)
	}
	n := len(nodes)
	shows(t, fmt.Sprintf("%d nodes in %d bytes are a page", n, size), "true true true <nil>", n < all,
		n >= 50, size <= maxPageBytes+16<<10, err)
	equal(t, "the key to continue after", next, fmt.Sprintf("%s/n%03d", clusterKey, n-1))

	const clusters = 30
	list := "/subscriptions/" + subscription + "/resourceGroups/big/providers/" + flexnode.ClusterType
	big := flexnode.Cluster{Location: "westeurope",
		Tags: map[string]string{"x": strings.Repeat("y", 60<<10)}}
	for i := range clusters {
		big.ID = fmt.Sprintf("%s/c%03d", list, i)
		w.change(func(v *store.View) error {
			return w.api.Store.Clusters.Set(v, fmt.Sprintf("%s/big/c%03d", subscription, i), big)
		})
	}
	w.caughtUp()
	found, url := 0, list+versionQuery
	for url != "" {
		_, text := w.must(200, "GET", url, "")
		page := decoded[api.List[api.ManagedCluster]](t, text)
		found, url = found+len(page.Value), path(page.NextLink)
		if len(text) > maxPageBytes+80<<10 || len(page.Value) == 0 {
			t.Fatalf("%d clusters in %d bytes", len(page.Value), len(text))
		}
	}
	equal(t, "the clusters on all pages", found, clusters)
}

// However many concurrent requests there are, one replica never admits more than the quota.
func TestQuotaAtOnce(t *testing.T) {
	w := newEdge(t)
	w.share(nil, fair.AtOnce{})
	w.api.Quotas = fair.Quotas{Default: fair.Quota{Nodes: 25}}
	var made, refused atomic.Int64
	var running sync.WaitGroup
	for n := range 100 {
		running.Go(func() {
			switch got := w.ask("operator", "PUT", nodeURL(fmt.Sprint("n", n)), withToken); got.Code {
			case 201:
				made.Add(1)
			case 409:
				refused.Add(1)
			default:
				t.Errorf("%d %s", got.Code, got.Body)
			}
		})
	}
	running.Wait()
	w.caughtUp()
	used, _ := w.index.Used(subscription)
	shows(t, "made, refused and counted", "25 75 25", made.Load(), refused.Load(), used.Nodes)
}
