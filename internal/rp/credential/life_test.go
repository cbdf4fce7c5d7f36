package credential

import (
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/rptest"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// review decides on a certificate request like package cluster; true if it is approved.
func (w *world) review(a Application) bool {
	ctx := w.t.Context()
	row := must(w.service.ByToken(ctx, clusterKey, a.TokenID))
	if why := Decide(a, row); why != "" {
		must(0, w.service.Denied(ctx, row.Key, a, why, store.Condition{}))
		return false
	}
	must(0, w.service.Consume(ctx, row.Key, a, store.Condition{}))
	return true
}

// A URL is dead for each reason alone, and does not reveal which.
func TestDeadURLs(t *testing.T) {
	w := live(t)
	url := strings.TrimPrefix(w.url(), public)
	_, alive := w.get(url)
	_, dead := w.get(HandoutPath + "x.json")
	isDead := func(what, url string) {
		t.Helper()
		if status, got := w.get(url); status != 403 || got != dead {
			t.Errorf("%s: %d %s", what, status, got)
		}
	}
	for _, u := range spoilt(url) {
		isDead(u, u)
	}
	_, again := w.get(url)
	equal(t, "what the URL gives out the second time", again, alive)
	w.clock.Pass(Lifetime)
	isDead("an expired URL", url)
	w.work()
	equal(t, "expired tokens", len(w.cluster.secrets), 0)
	must(0, w.put(withToken, true, true))
	w.work()
	url = w.url()
	own := w.node().Credential
	edit(w, w.store().Nodes, nodeKey, func(n *flexnode.Node) { n.Credential = "" })
	isDead("the URL of a node without it", url)
	edit(w, w.store().Nodes, nodeKey, func(n *flexnode.Node) { n.Credential = own })
	w.answers("the URL of a node with it", url, 200)
	must(0, w.put(labelled(withToken, "x"), false, true))
	isDead("a replaced URL", url)
	recorder := httptest.NewRecorder()
	w.handout.ServeHTTP(recorder, rptest.Request("PUT", url, ""))
	if recorder.Code != 405 || recorder.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("a PUT: %d %v", recorder.Code, recorder.Header())
	}
}

// Only the provider makes enrolment secrets: their ids are in URLs and logs.
func TestForgedEnrolment(t *testing.T) {
	w := live(t)
	_, text := w.get(w.url())
	made, uid := config.JoiningOf([]byte(text)).EnrolmentSecret, w.node().UID
	id, mac, _ := strings.Cut(made, ".")
	for secret, want := range map[string]string{
		made: id, id: "", id + ".": "", id + "." + strings.Repeat("A", len(mac)): "", "x." + mac: "",
		w.service.enrolmentSecret("another", id): "",
	} {
		equal(t, secret, w.service.Enrolment(uid, secret), want)
	}
}

// spoilt returns URLs that differ slightly from the one that was made.
func spoilt(url string) []string {
	bare, query, _ := strings.Cut(url, "?")
	replace := func(name, to string) string {
		return regexp.MustCompile(name+"=[^&]*").ReplaceAllString(url, name+"="+to)
	}
	key := strings.TrimPrefix(bare, HandoutPath)
	bad := []string{
		bare, replace("sv", "2018-11-09"), replace("se", "2036-05-02T12%3A00%3A00Z"),
		replace("sp", "rw"), replace("sr", "c"), replace("spr", "http"), replace("sig", "AAAA"),
		replace("sig", ""), url + "&sip=1.2.3.4", url + "&sp=r", bare + "x?" + query,
		strings.Replace(url, "/configs/", "/configs//", 1),
		HandoutPath + strings.ToUpper(key) + "?" + query,
	}
	for i := range len(query) { // every character of the query
		bent := []byte(query)
		bent[i] = map[bool]byte{true: 'B', false: 'A'}[bent[i] == 'A']
		bad = append(bad, bare+"?"+string(bent))
	}
	return bad
}

// A node of a cluster that is down gets its credential when the cluster is back; until then the
// reason is shown.
func TestClusterIsDown(t *testing.T) {
	w, ctx := beside(t), t.Context()
	w.cluster.down = errDown
	must(0, w.put(withToken, true, false))
	key := w.node().Credential
	if next, err := w.service.Step(ctx, key, w.cluster, store.Condition{}); err != nil ||
		next.After(w.clock.Now().Add(time.Minute)) {
		t.Errorf("a node that was never rendered: next %s, %v", next, err)
	}
	if got := w.credential(key).Problem; !strings.Contains(got, "has not been reached") {
		t.Errorf("the problem is %q", got)
	}
	must(0, w.put(withToken, true, true)) // the cluster was probed
	equal(t, "a credential for another configuration is kept", w.node().Credential == key, false)
	w.tryOnce()
	key = w.node().Credential
	_, err := w.service.Step(ctx, key, w.cluster, store.Condition{})
	equal(t, "a step with a dead cluster is an error", err != nil, true)
	is := func(state, problem string) {
		t.Helper()
		c := w.credential(key)
		equal(t, "its state, and why", c.State+", "+c.Problem, state+", "+problem)
	}
	is(store.Pending, toldDown)
	equal(t, "a URL that is not served", w.url(), "")
	equal(t, "the node is", w.node().State, api.Creating)
	w.cluster.down = nil
	w.work()
	is(store.Live, "")
	w.consistent([]string{w.url()})

	w.cluster.down = errDown
	url := w.url()
	must(0, w.delete())
	w.answers("the URL of a deleted node", url, 403)
	w.tryOnce()
	w.cluster.down = nil
	w.work()
	equal(t, "a deleted node's tokens", len(w.cluster.secrets), 0)
	w.consistent([]string{url})
}

// tryOnce makes the reconciler try once; the attempt fails.
func (w *world) tryOnce() { _ = w.step() }

// A problem is recorded once, so that its record does not trigger another attempt at once.
func TestAProblemIsNotedOnce(t *testing.T) {
	w := beside(t)
	must(0, w.put(withToken, true, true))
	key := w.node().Credential
	for i := range 3 {
		w.cluster.down = errTo(i)
		w.tryOnce()
	}
	row := get(w, w.store().Credentials, key)
	if got := row.Value.Problem; strings.Contains(got, "127.0.0.1") || got == "" {
		t.Errorf("callers read %q", got)
	}
	w.cluster.down = errTo(77)
	w.tryOnce()
	equal(t, "its revision", get(w, w.store().Credentials, key).Revision, row.Revision)
	w.cluster.down = errDown
	w.tryOnce()
	equal(t, "another problem is noted as", w.credential(key).Problem, toldDown)
}

type errTo int

func (e errTo) Error() string {
	return "dial tcp 127.0.0.1:" + strconv.Itoa(40000+int(e)) + ": refused"
}

// A caller that retries while the cluster does not answer gets the pending credential, and nothing
// is revoked (regenerateToken, retried by a client library).
func TestAskedAgainWhileTheClusterIsDown(t *testing.T) {
	w := beside(t)
	w.cluster.down = errDown
	must(0, w.put(withToken, true, true))
	w.tryOnce()
	key := w.node().Credential
	for range 3 {
		must(0, w.regenerate())
		w.tryOnce()
	}
	rows := list(w, w.store().Credentials)
	if len(rows) != 1 || rows[0].Key != key || rows[0].Value.State != store.Pending {
		t.Errorf("%v", rows)
	}
	w.clock.Pass(Lifetime * 3 / 4) // too little is left of it
	must(0, w.regenerate())
	equal(t, "a credential that is about to expire is given again", w.node().Credential == key, false)
	w.cluster.down = nil
	w.work()
	live := w.node().Credential
	must(0, w.regenerate())
	equal(t, "a live credential is kept", w.node().Credential == live, false)
	w.work()
	w.consistent([]string{w.url()})
}

// A wait that cannot succeed ends: the credential expires before its cluster is back.
func TestTheWaitOfANodeEnds(t *testing.T) {
	t.Parallel()
	for _, reached := range []bool{true, false} {
		w := newWorld(t)
		w.cluster.down = errDown
		must(0, w.put(withToken, true, reached))
		w.tryOnce()
		w.clock.Pass(Lifetime)
		w.tryOnce()
		n := w.node()
		want := api.Failed
		if reached { // it has a configuration, and perhaps runs
			want = ""
		}
		if n.State != want || !strings.Contains(n.Reason, "expired") ||
			reached && !strings.Contains(n.Reason, toldDown) ||
			strings.Contains(n.Reason, "10.1.2.3") {
			t.Errorf("reached=%v: the node is %s: %s", reached, n.State, n.Reason)
		}
		w.cluster.down = nil
		w.work()
		if n := w.node(); n.Credential != "" || n.State != want {
			t.Errorf("reached=%v: %+v", reached, n)
		}
	}
}

// A waiting bundle follows its node: it gets new facts of the cluster, and its URL has its version.
func TestAWaitingBundleFollowsItsNode(t *testing.T) {
	w, ctx := live(t), t.Context()
	url, key := w.url(), w.node().Credential
	before := must(w.service.URL(ctx, key)).ConfigVersion
	_, text := w.get(url)
	was, _ := bundle(t, text)
	must(0, w.moveCluster("https://moved.example"))
	equal(t, "the version that the URL names", must(w.service.URL(ctx, key)).ConfigVersion, before)
	w.work()
	_, text = w.get(url)
	c, from := bundle(t, text)
	u := must(w.service.URL(ctx, key))
	if c.Node.Kubelet.ServerURL != "https://moved.example" || from.ConfigVersion != u.ConfigVersion ||
		u.ConfigVersion == before || u.ConfigURL != url {
		t.Errorf("%s; from %+v; the URL says %+v", text, from, u)
	}
	equal(t, "the token", c.Azure.BootstrapToken.Token.Reveal(),
		was.Azure.BootstrapToken.Token.Reveal())
	w.consistent([]string{url})
}

// moveCluster gives the cluster other facts, and the node a configuration with them.
func (w *world) moveCluster(server string) error {
	w.version++
	return w.updateNode(func(v *store.View, n *flexnode.Node) {
		c := w.store().Clusters.Row(v, clusterKey).Value
		c.Facts = w.facts(v, server)
		must(0, w.store().Clusters.Put(v, clusterKey, c))
		must(0, w.rendered(v, n, w.version))
	})
}

// During a rollout, machines that join get the assigned configuration.
func TestAMachineJoinsWithWhatIsAssigned(t *testing.T) {
	w := beside(t)
	must(0, w.put(withToken, false, true))
	held := w.node().Assigned
	must(0, w.put(labelled(withToken, "new"), true, true))
	edit(w, w.store().Nodes, nodeKey, func(n *flexnode.Node) { n.Assigned = held })
	w.work()
	_, text := w.get(w.url())
	_, from := bundle(t, text)
	equal(t, "the version of the bundle", from.ConfigVersion, strconv.FormatInt(held, 10))
}

// A replica whose clock is ahead of another's ends no URL that the other one still serves.
func TestAClockThatIsAheadEndsNoURL(t *testing.T) {
	w := live(t)
	key := w.node().Credential
	lead := 2 * Lifetime
	w.service.Lead = func() time.Duration { return lead }
	w.clock.Pass(lead)
	next := must(w.service.Step(t.Context(), key, w.cluster, store.Condition{}))
	if c := w.credential(key); c.State != store.Live || !next.Equal(c.Expires.Add(lead)) {
		t.Errorf("%s, and again at %v", c.State, next)
	}
	lead = 0
	w.work()
	equal(t, "it lives with the right clock", w.credential(key).State == store.Live, false)
}
