package front

import (
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
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

const callerHeader = "X-Test-Caller"

// asNamed authenticates callers by a header: the machine of withManaged, or a person of that name.
func asNamed(r *http.Request) (Caller, error) {
	name := r.Header.Get(callerHeader)
	if name == "machine" {
		return Caller{ObjectID: name, TenantID: tenant, Type: "Application",
			AppID: "aaaaaaaa-0000-0000-0000-000000000001"}, nil
	}
	return Caller{ObjectID: name, TenantID: tenant, Type: "User"}, nil
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
func (w *world) gets(status int, caller, method, url, body string, headers ...string) {
	w.t.Helper()
	if got := w.ask(caller, method, url, body, headers...); got.Code != status {
		w.t.Errorf("%s: %s %s: %d %s, want %d", caller, method, url, got.Code, got.Body, status)
	}
}

func at(burst int, perSecond float64) fair.Rate {
	return fair.Rate{Burst: burst, PerSecond: perSecond}
}

const remainingHeader = "X-Ms-Ratelimit-Remaining-Resource"

// A caller with too many requests gets an error with the time to retry; others are answered.
func TestThrottling(t *testing.T) {
	w := newEdge(t)
	etag := w.do("PUT", nodeURL("n"), withManaged).Header.Get("ETag")
	w.caughtUp()
	w.share(fair.Rates{
		fair.Principal: {
			fair.Reads: at(3, .3), fair.Lists: at(1, 1), fair.Writes: at(2, 1), fair.Deletes: at(1, 1),
		},
		fair.Subscription: {fair.Reads: at(100, 100)},
		fair.Node:         {fair.All: at(50, 10)},
	}, fair.AtOnce{})
	list := cluster + "/flexNodeConfig" + versionQuery
	for _, tt := range []struct {
		method, url, body string
		wants             []int
	}{
		{"GET", nodeURL("n"), "", []int{200, 200, 200, 429}},
		{"GET", list, "", []int{200, 429}},
		{"PUT", nodeURL("n"), withManaged, []int{200, 200, 429}},
		{"DELETE", nodeURL("m"), "", []int{204, 429}},
	} {
		for _, want := range tt.wants {
			w.gets(want, "script", tt.method, tt.url, tt.body)
		}
	}
	refused := w.ask("script", "GET", nodeURL("n"), "")
	if refused.Code != 429 || code(refused.Body.String()) != "TooManyRequests" ||
		must(strconv.Atoi(refused.Header().Get("Retry-After"))) < 4 ||
		refused.Header().Get("x-ms-error-code") != "TooManyRequests" ||
		!strings.Contains(refused.Body.String(), "Please try again after '4' seconds") {
		t.Errorf("%v %s", refused.Header(), refused.Body)
	}
	const namespace = "Microsoft.ContainerService/"
	equal(t, "what remains", refused.Header()[remainingHeader],
		[]string{namespace + "FlexNodeReads;0"})
	got := w.ask("operator", "GET", nodeURL("n"), "")
	if left := got.Header()[remainingHeader]; got.Code != 200 || len(left) != 2 ||
		left[0] != namespace+"FlexNodeReads;2" ||
		left[1] != namespace+"FlexNodeSubscriptionReads;96" {
		t.Errorf("another caller: %d, %q", got.Code, left)
	}
	for range 50 {
		got := w.ask("machine", "GET", nodeURL("n"), "", "If-None-Match: "+etag)
		if got.Code != 304 || got.Header()[remainingHeader] != nil {
			t.Fatalf("a poll: %d %v", got.Code, got.Header())
		}
	}
	w.gets(429, "machine", "GET", nodeURL("n"), "", "If-None-Match: "+etag)
	w.clock.Pass(4 * time.Second)
	w.gets(200, "script", "GET", nodeURL("n"), "")
	lacks(t, "the audit log", w.audit.String(), `"status":429`)
}

// The load of a node on the store is limited separately, and no other caller takes its share.
func TestReportsAreThrottled(t *testing.T) {
	w := newEdge(t)
	for _, name := range []string{"n", "m"} {
		w.must(201, "PUT", nodeURL(name), withManaged)
	}
	w.caughtUp()
	w.share(fair.Rates{fair.Node: {
		fair.All: at(100, 1), fair.Refreshes: at(2, .1), fair.Reports: at(3, 1), fair.Stored: at(500, 50),
	}}, fair.AtOnce{})
	for _, caller := range []string{"operator", "machine"} {
		for action, burst := range map[string]int{"/reportStatus": 3, "/refreshCredentials": 2} {
			for n := range burst + 2 {
				got := w.ask(caller, "POST", nodeURL("n", action), "{}")
				equal(t, fmt.Sprintf("%s of %s, number %d is refused", action, caller, n),
					got.Code == http.StatusTooManyRequests, n >= burst)
			}
		}
	}
	for _, action := range []string{"/reportStatus", "/refreshCredentials"} {
		if got := w.ask("machine", "POST", nodeURL("m", action), "{}"); got.Code == 429 {
			t.Errorf("%s of another node: %d", action, got.Code)
		}
	}
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
		kind, ok := want[name]
		if !ok {
			kind = fair.Writes
		}
		delete(want, name)
		r := &request{Request: &http.Request{Method: route.method}, route: &route}
		if r.kind() != kind || r.class() != classes[kind] {
			t.Errorf("%s: %s, class %s", name, r.kind(), r.class())
		}
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
	w := newEdge(t)
	w.do("PUT", nodeURL("n"), withManaged)
	w.caughtUp()
	w.share(fair.Rates{
		fair.Principal:    {fair.Reads: at(5, .001)},
		fair.Subscription: {fair.Reads: at(4, .001)},
	}, fair.AtOnce{})
	provider := "/subscriptions/" + subscription +
		"/providers/Microsoft.ContainerService?api-version=2021-04-01"
	for n := range 10 {
		want := http.StatusForbidden
		if n >= 5 {
			want = http.StatusTooManyRequests
		}
		other := fmt.Sprintf("%08d%s", n, subscription[8:])
		url := strings.Replace(nodeURL("n"), subscription, other, 1)
		w.gets(want, "stranger", "GET", url, "")
		w.ask("another", "GET", nodeURL("n"), "")
		w.ask("third", "GET", provider, "")
	}
	for n := range 5 {
		want := map[bool]int{true: http.StatusOK, false: http.StatusTooManyRequests}[n < 4]
		w.gets(want, "operator", "GET", nodeURL("n"), "")
	}
}

// Behind Resource Manager a caller is the node if it has its identity and names its uid.
func TestWhoIsTheNodeBehindManager(t *testing.T) {
	w := newEdge(t)
	uid := w.node(201, "PUT", nodeURL("n"), withManaged).Properties.ResourceUID
	offered := w.desires("n")
	w.report("n", offered, "")
	w.settles(200, "PUT", nodeURL("n"), strings.Replace(withManaged, "50", "60", 1)) // not offered yet
	w.share(fair.Rates{
		fair.Principal: {fair.Reads: at(1000, 1)}, fair.Node: {fair.All: at(1000, 1)},
	}, fair.AtOnce{})
	const own, other = "aaaaaaaa-0000-0000-0000-000000000001", clientB
	for _, tt := range []struct {
		name, app, uid string
		byNode, heard  bool
		status         int
	}{
		{"its identity and uid", own, uid, true, true, 200},
		{"its uid alone", other, uid, false, false, 200},
		{"its identity alone, as of a pipeline", own, "", false, false, 200},
		{"its identity, and the uid of another", own, subscription, false, false, 404},
	} {
		w.api.Seen = &fakeSeen{}
		headers := []string{"x-ms-client-app-id: " + tt.app, "x-ms-client-tenant-id: " + tenant}
		if tt.uid != "" {
			headers = append(headers, "x-ms-flexnode-uid: "+tt.uid)
		}
		got := w.send(w.manager, "GET", nodeURL("n"), "", headers...)
		byNode := got.Header[remainingHeader] == nil
		heard := !w.api.Seen.Last(clusterKey + "/n").IsZero()
		if got.StatusCode != tt.status || byNode != tt.byNode || heard != tt.heard {
			t.Errorf("%s: %d, counts as the node's: %t, heard of: %t", tt.name, got.StatusCode,
				byNode, heard)
		}
		if text := readAll(t, got.Body); got.StatusCode == 200 && (tt.uid != "") !=
			(shownNode(t, text).Properties.ConfigVersion == offered) {
			t.Errorf("%s: gets %s, offered is %s", tt.name, text, offered)
		}
	}
}

// While all places of a class are taken, only its own requests are refused.
func TestPlaces(t *testing.T) {
	w := newEdge(t)
	etag := w.do("PUT", nodeURL("n"), withManaged).Header.Get("ETag")
	w.caughtUp()
	one := fair.Places{InFlight: 1, Wait: time.Second}
	w.share(nil, fair.AtOnce{one, one, one, one, one})
	list := cluster + "/flexNodeConfig" + versionQuery
	for class, request := range map[fair.Class]func() int{
		fair.ForNodes: func() int {
			return w.ask("machine", "GET", nodeURL("n"), "", "If-None-Match: "+etag).Code
		},
		fair.ForNodeStore: func() int {
			return w.ask("machine", "POST", nodeURL("n", "/reportStatus"), "{}").Code
		},
		fair.ForReads:  func() int { return w.ask("operator", "GET", nodeURL("n"), "").Code },
		fair.ForLists:  func() int { return w.ask("operator", "GET", list, "").Code },
		fair.ForWrites: func() int { return w.ask("operator", "PUT", nodeURL("n"), withManaged).Code },
	} {
		for _, other := range fair.Classes() {
			place := must(w.api.Gate.Enter(context.Background(), other, ""))
			equal(t, fmt.Sprintf("%s, while those of %s are taken, is refused", class, other),
				request() == http.StatusTooManyRequests, other == class)
			place.Leave()
		}
		equal(t, fmt.Sprintf("%s: a place was lost", class), request() == http.StatusTooManyRequests,
			false)
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
	w.share(nil, fair.AtOnce{
		fair.ForReads: {InFlight: 1, Wait: time.Millisecond},
		fair.ForLists: {InFlight: 1, Wait: time.Millisecond},
	})
	for _, url := range []string{nodeURL("n"), cluster + "/flexNodeConfig" + versionQuery} {
		slow := unread{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
		r := httptest.NewRequest(http.MethodGet, publicURL+url, nil)
		r.Header.Set(callerHeader, "operator")
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
	w := newEdge(t)
	etag := w.do("PUT", nodeURL("n"), withManaged).Header.Get("ETag")
	w.caughtUp()
	w.share(nil, fair.DefaultAtOnce())
	w.memory.Pause()
	ctx, giveUp := context.WithCancel(context.Background())
	var asking sync.WaitGroup
	for i := range 300 { // reports, and polls without an ETag
		method, url := "POST", nodeURL("n", "/reportStatus")
		if i%3 == 0 {
			method, url = "GET", nodeURL("n")
		}
		r := httptest.NewRequest(method, publicURL+url, strings.NewReader("{}")).WithContext(ctx)
		r.Header.Set(callerHeader, "machine")
		r.Header.Set("Content-Type", "application/json")
		asking.Go(func() { w.front.ServeHTTP(httptest.NewRecorder(), r) })
	}
	w.until("all of them wait", func() bool {
		taken, waiting := w.api.Gate.Load(fair.ForNodeStore)
		return taken == 64 && waiting == 300-64
	})
	began := time.Now()
	for range 10 {
		w.gets(304, "machine", "GET", nodeURL("n"), "", "If-None-Match: "+etag)
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
		w.must(201, "PUT", nodeURL(fmt.Sprintf("n%d", i+1)), withManaged)
	}
	w.caughtUp()
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
	w.caughtUp()
	before := w.index.Revision()
	etag, last := w.node(200, "GET", nodeURL("n"), "").ETag, 0
	for range 30 {
		m.boots()
		last = w.do("GET", nodeURL("n"), "", "If-None-Match: "+etag,
			m.signs(machinekey.Request{})).StatusCode
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
	got := w.do("GET", link, "")
	if got.StatusCode != 429 || got.Header.Get("Retry-After") == "" {
		t.Errorf("%d %v", got.StatusCode, got.Header)
	}
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

const usagesURL = "/subscriptions/" + subscription +
	"/providers/Microsoft.ContainerService/locations/westeurope/usages" + versionQuery

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
	refused("PUT", strings.Replace(cluster, "Factory", "Other", 1)+versionQuery,
		`{"location":"westeurope","properties":{}}`, "FlexNodeClusters")
	// What is there can be changed, and a token be replaced.
	w.must(200, "PUT", nodeURL("a"), strings.Replace(withToken, "prod", "test", 1))
	w.must(200, "POST", nodeURL("b", "/regenerateToken"), "{}")
	w.settles(200, "PUT", cluster+versionQuery, `{"location":"westeurope","tags":{"a":"b"}}`)
	_, text := w.must(200, "GET", usagesURL, "")
	const want = `{"value":[{"unit":"Count","name":{"value":"FlexNodes",` +
		`"localizedValue":"Flex nodes"},"currentValue":2,"limit":2},`
	if !strings.HasPrefix(text, want) ||
		!strings.Contains(text, `"FlexNodeClusters","localizedValue":"Target clusters of flex `+
			`nodes"},"currentValue":1,"limit":1}`) ||
		!strings.Contains(text, `machine has used"},"currentValue":1,"limit":1}`) {
		t.Error(text)
	}
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
		w.gets(want, "operator", "PUT", strings.Replace(cluster, "Factory", name, 1)+versionQuery,
			`{"location":"westeurope","properties":{}}`)
	}
	for body, want := range map[string]int{
		`{"location":"westeurope","tags":{"a":"b"}}`:                                   200,
		`{"location":"westeurope","properties":{"rolloutPolicy":{"paused":true}}}`:     200,
		`{"location":"westeurope","properties":{"serverUrl":"https://other.example"}}`: 429,
		`{"location":"westeurope","properties":{"dnsServiceIP":"10.0.0.11"}}`:          429,
	} {
		w.gets(want, "operator", "PUT", cluster+versionQuery, body)
	}
	w.gets(429, "operator", "DELETE", cluster+versionQuery+"&nodes=release", "")
}

// A subscription may not replace credentials without end: while its cluster does not answer, each
// stays a day. A retry gets the same one, which does not count. A machine can always be shut out.
func TestNewCredentialsAreBounded(t *testing.T) {
	w := newEdge(t)
	w.share(fair.Rates{fair.Subscription: {fair.Kind(fair.Tokens): at(5, .01)}}, fair.AtOnce{})
	w.api.Quotas.Default.Tokens = 1
	w.api.Patience = time.Millisecond
	w.cluster.isDown.Store(true)
	withURL := nodeURL("a") + "&configUrl=true"
	w.gets(201, "operator", "PUT", withURL, withToken)
	for range 10 {
		w.gets(200, "operator", "PUT", withURL, withToken)
	}
	for i := range 6 {
		want := map[bool]int{true: 202, false: 429}[i < 3]
		w.gets(want, "operator", "POST", now(nodeURL("a", "/regenerateToken")), "{}")
		if i == 1 {
			w.gets(200, "operator", "PUT", withURL, strings.Replace(withToken, "prod", "test", 1))
		}
	}
	rows := must(w.api.Store.Credentials.Keys(t.Context(), clusterKey+"/"))
	equal(t, "the credentials", len(rows), 5)
	again := now(nodeURL("a", "/regenerateToken"))
	for name, machine := range map[string]func(*flexnode.Node){
		"registered": func(n *flexnode.Node) { n.MachineKey = "key" },
		"joining":    func(n *flexnode.Node) { n.Joining = rows[:1] },
	} {
		edit(w, w.api.Store.Nodes, clusterKey+"/a", machine)
		equal(t, name, w.ask("operator", "POST", again, "{}").Code, 202)
		equal(t, name+", again", w.ask("operator", "POST", again, "{}").Code, 429)
	}
	w.api.Quotas.Default.Nodes = 6000 // doubles the rate
	w.gets(429, "operator", "POST", again, "{}")
	w.clock.Pass(50 * time.Second)
	w.gets(202, "operator", "POST", again, "{}")
}

// A subscription whose nodes take too many bytes may grow nothing, but shrink everything.
func TestQuotaOfBytes(t *testing.T) {
	w := newEdge(t)
	w.settles(201, "PUT", nodeURL("a"), withToken)
	used, _ := w.index.Used(subscription)
	w.api.Quotas.Default.Bytes = used.Bytes
	larger := strings.Replace(withToken, "prod", "production", 1)
	for _, name := range []string{"a", "b"} {
		w.refused(409, "QuotaExceeded", "PUT", nodeURL(name), larger, "FlexNodeBytes quota")
	}
	w.must(200, "PUT", nodeURL("a"), withToken)
	w.must(200, "PUT", nodeURL("a"), strings.Replace(withToken, "prod", "x", 1))
	// A rollback may not grow it either.
	w.api.Quotas.Default.Bytes = 0
	first := w.node(200, "PUT", nodeURL("a"), withToken).Properties.ConfigVersion
	w.must(200, "PUT", nodeURL("a"), strings.Replace(withToken, "prod", "x", 1))
	w.caughtUp()
	used, _ = w.index.Used(subscription)
	w.api.Quotas.Default.Bytes = used.Bytes
	back := fmt.Sprintf(`{"configVersion":%q}`, first)
	w.refused(409, "QuotaExceeded", "POST", nodeURL("a", "/rollback"), back, "FlexNodeBytes quota")
	_, text := w.must(200, "GET", usagesURL, "")
	has(t, "the usages", text, `{"unit":"Bytes","name":{"value":"FlexNodeBytes",`)
}

// The same for a node that has no revision yet, since its cluster was never reached.
func TestQuotaOfBytesWithoutARevision(t *testing.T) {
	w := beside(t)
	w.cluster.isDown.Store(true)
	w.api.Patience = time.Millisecond
	w.register("")
	w.settles(201, "PUT", nodeURL("a"), withToken)
	used, _ := w.index.Used(subscription)
	w.api.Quotas.Default.Bytes = used.Bytes
	larger := strings.Replace(withToken, "prod", "production", 1)
	w.refused(409, "QuotaExceeded", "PUT", nodeURL("a"), larger, "FlexNodeBytes quota")
}

// A page of a list ends after half a megabyte.
func TestPagesEndByBytes(t *testing.T) {
	w := newEdge(t)
	const all = 1000
	var node flexnode.Node
	node.Desired.NodeConfig.Labels = map[string]string{"x": strings.Repeat("y", 8<<10)}
	for i := range all {
		must(w.api.Store.Update(t.Context(), "", nil, func(v *store.View) error {
			return w.api.Store.Nodes.Set(v, fmt.Sprintf("%s/n%03d", clusterKey, i), node)
		}))
	}
	w.caughtUp()
	nodes, next, err := w.api.listed(clusterKey, "", all, flexnode.Filter{})
	size := 0
	for _, n := range nodes {
		size += len(n)
	}
	n := len(nodes)
	if err != nil || n >= all || n < 50 || size > maxPageBytes+16<<10 {
		t.Errorf("%d nodes in %d bytes, %v", n, size, err)
	}
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
	if made.Load() != 25 || refused.Load() != 75 || used.Nodes != 25 {
		t.Errorf("made %d, refused %d, counted %d", made.Load(), refused.Load(), used.Nodes)
	}
}
