package front

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/rptest"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// byHeader authenticates each request as the application in its header, or as the operator.
func byHeader(r *http.Request) (Caller, error) {
	c := Caller{ObjectID: "operator", Type: "Application", TenantID: tenant}
	if c.AppID = r.Header.Get("Test-App"); c.AppID != "" {
		c.ObjectID = "object-of-" + c.AppID
	}
	return c, nil
}

// answered holds the answer to a poll, and its time.
type answered struct {
	status int
	text   string
	header http.Header
	after  time.Duration
	done   chan struct{}
	cancel context.CancelFunc
	t      *testing.T
}

const wait20 = "Prefer: wait=20"

// poll begins a poll of the node n.
func (w *world) poll(t *testing.T, headers ...string) *answered {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := rptest.Request("GET", nodeURL("n"), "", headers...).WithContext(ctx)
	a := &answered{done: make(chan struct{}), cancel: cancel, t: t}
	t.Cleanup(cancel)
	began := time.Now()
	go func() {
		defer close(a.done)
		recorder := httptest.NewRecorder()
		w.front.ServeHTTP(recorder, r)
		a.status, a.text, a.header = recorder.Code, recorder.Body.String(), recorder.Header()
		a.after = time.Since(began).Truncate(100 * time.Millisecond)
	}()
	synctest.Wait()
	return a
}

// is checks an answer: its status, its time, and Preference-Applied.
func (a *answered) is(status int, after time.Duration, applied string) {
	a.t.Helper()
	<-a.done
	said := a.header.Get("Preference-Applied")
	if a.status != status || a.after != after || said != applied {
		a.t.Errorf("%d after %s with %q, want %d after %s with %q: %s", a.status, a.after, said,
			status, after, applied, a.text)
	}
}

// waits checks that a poll has no answer yet.
func (a *answered) waits() {
	a.t.Helper()
	synctest.Wait()
	select {
	case <-a.done:
		a.t.Errorf("answered %d after %s: %s", a.status, a.after, a.text)
	default:
	}
}

// bubble runs a test with a world and its cluster in a bubble of time.
func bubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	warm := newWorld(t) // what is made once is made outside of the bubble
	warm.register("")
	warm.must(201, "PUT", nodeURL("n"), nodeOf(clientA, "x"))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.register("")
		test(t, w)
	})
}

// waiting runs a test in a bubble of time, with the node n of clientA and an If-None-Match of it.
func waiting(t *testing.T, test func(t *testing.T, w *world, same string)) {
	t.Helper()
	bubble(t, func(t *testing.T, w *world) {
		w.front = w.api.Direct(authenticate(byHeader))
		r, _ := w.settles(201, "PUT", nodeURL("n"), nodeOf(clientA, "x"))
		test(t, w, "If-None-Match: "+r.Header.Get("ETag"))
	})
}

const (
	asA = "Test-App: " + clientA
	asB = "Test-App: " + clientB
)

// A poll that prefers to wait is answered with the change of its node, or at the end of its time.
func TestAPollWaits(t *testing.T) {
	waiting(t, func(t *testing.T, w *world, same string) {
		a := w.poll(t, asA, same, wait20)
		equal(t, "when its node was seen last while it waits", w.api.Seen.Last(clusterKey+"/n"),
			w.clock.Now())
		time.Sleep(5 * time.Second)
		w.must(204, "POST", nodeURL("n", "/reportStatus"), `{"agentVersion":"1"}`)
		w.edit("n", func(n *flexnode.Node) { n.State = "" })
		a.waits() // the status, or a row of the same ETag, is no change
		w.must(200, "PUT", nodeURL("n"), strings.Replace(nodeOf(clientA, "x"), `"azureAuth"`,
			`"nodeConfig":{"maxPods":77},"azureAuth"`, 1))
		a.is(200, 5*time.Second, "wait=20")
		has(t, "the answer", a.text, "77")
		equal(t, "when it is to ask again", a.header.Get("X-Ms-Flexnode-Poll-Interval"), "1")
		next := "If-None-Match: " + a.header.Get("ETag")
		w.poll(t, asA, same, wait20).is(200, 0, "wait=20")
		w.poll(t, asA, next, "Prefer: wait=7").is(304, 7*time.Second, "wait=7")
		w.poll(t, asA, next, "Prefer: wait=60").is(304, 25*time.Second, "wait=25")
		w.poll(t, asA, wait20).is(200, 0, "") // not a poll
		shows(t, "those that are left", "0 map[]", w.api.Waiters.Count(), w.api.Waiters.of)
	})
}

// Without the preference, or with an invalid one, a poll is answered at once.
func TestPreference(t *testing.T) {
	for prefer, want := range map[string]time.Duration{
		"":                              0,
		"wait":                          0,
		"wait=-1":                       0,
		"wait=1.5":                      0,
		"wait=99999999999":              0,
		"respond-async":                 0,
		"waiting=3":                     0,
		"wait=3":                        3 * time.Second,
		"respond-async, WAIT = \"4\";x": 4 * time.Second,
		"wait=5, wait=6":                5 * time.Second,
	} {
		equal(t, prefer, preferredWait(http.Header{"Prefer": {prefer}}), want)
	}
	several := http.Header{"Prefer": {"return=minimal", "wait=8"}}
	equal(t, "the second header", preferredWait(several), 8*time.Second)
}

// A waiting poll ends at once when its node is deleted, even if another of its name exists.
func TestAWaitingNodeIsDeleted(t *testing.T) {
	waiting(t, func(t *testing.T, w *world, same string) {
		uid := uidHeader + ": " + w.storedNode("n").UID
		agent := w.poll(t, asA, uid, same, wait20)
		person := w.poll(t, same, wait20)
		time.Sleep(time.Second)
		w.must(200, "DELETE", nodeURL("n"), "")
		for _, a := range []*answered{agent, person} {
			a.is(404, time.Second, "wait=20")
			has(t, "the answer", a.text, TombstoneInfo)
		}
		r, _ := w.settles(201, "PUT", nodeURL("n"), nodeOf(clientB, "x"))
		same = "If-None-Match: " + r.Header.Get("ETag")
		unnamed := w.poll(t, asB, same, wait20)
		uid = uidHeader + ": " + w.storedNode("n").UID
		agent = w.poll(t, asB, uid, same, wait20)
		w.memory.Pause() // so that the index sees both at once
		w.memory.Resume()
		w.must(200, "DELETE", nodeURL("n"), "")
		w.must(201, "PUT", nodeURL("n"), nodeOf(clientA, "x"))
		agent.is(404, 0, "wait=20")
		has(t, "what the former node gets", agent.text, TombstoneInfo)
		<-unnamed.done
		if unnamed.status != 404 && unnamed.status != 403 || strings.Contains(unnamed.text, clientA) {
			t.Errorf("the former node without a uid: %d %s", unnamed.status, unnamed.text)
		}
	})
}

// A caller that has ceased to be the node gets nothing of it.
func TestIdentityIsReplacedWhileItWaits(t *testing.T) {
	waiting(t, func(t *testing.T, w *world, same string) {
		a := w.poll(t, asA, same, wait20)
		r, _ := w.must(200, "PUT", nodeURL("n"), nodeOf(clientB, "x"))
		a.is(200, 0, "wait=20") // it has to learn the new one
		w.caughtUp()
		same = "If-None-Match: " + r.Header.Get("ETag")
		a, operator := w.poll(t, asA, same, wait20), w.poll(t, same, wait20)
		b := w.poll(t, asB, same, wait20) // is seen, so that A is forgotten
		a.is(403, 0, "wait=20")
		operator.waits()
		b.waits()
		b.is(304, 20*time.Second, "wait=20")
		operator.is(304, 20*time.Second, "wait=20")
	})
}

// At most so many polls wait at once; the others are answered at once, as without the preference.
func TestWaitingIsBounded(t *testing.T) {
	waiting(t, func(t *testing.T, w *world, same string) {
		w.api.Waiters = NewWaiters(25*time.Second, 2)
		w.index.Subscribe(w.api.Waiters.Wake)
		first := w.poll(t, asA, same, wait20)
		second := w.poll(t, same, wait20)
		third := w.poll(t, asA, same, wait20)
		third.is(304, 0, "")
		equal(t, "when it is to ask again", third.header.Get("X-Ms-Flexnode-Poll-Interval"), "30")
		first.cancel() // its agent has gone
		<-first.done
		equal(t, "the answer to an agent that has gone", first.status, 499)
		fourth := w.poll(t, asA, same, wait20)
		fourth.waits()
		second.is(304, 20*time.Second, "wait=20")
		fourth.is(304, 20*time.Second, "wait=20")

		w.api.Waiters = NewWaiters(25*time.Second, 1000)
		for range maxPerNode {
			w.poll(t, same, wait20).waits()
		}
		w.poll(t, same, wait20).is(304, 0, "")
		for range maxPerNode { // people do not keep the agent from waiting
			w.poll(t, asA, same, wait20).waits()
		}
		w.poll(t, asA, same, wait20).is(304, 0, "")
	})
}

// When a replica stops, waiting and new polls are answered at once, and their agents return as soon
// as the number of agents permits: the next replica holds their polls.
func TestWaitingEndsWithTheReplica(t *testing.T) {
	waiting(t, func(t *testing.T, w *world, same string) {
		w.api.Pace.perSecond = 1
		w.api.Pace.Expect(20)
		a := w.poll(t, asA, same, wait20)
		time.Sleep(10 * time.Second)
		w.api.Waiters.End()
		a.is(304, 10*time.Second, "")
		b := w.poll(t, asA, same, wait20)
		b.is(304, 0, "")
		for _, x := range []*answered{a, b} {
			equal(t, "when it is to ask again", x.header.Get("X-Ms-Flexnode-Poll-Interval"), "20")
		}
	})
}

// A change between the index's answer and the wait is not missed, even with an index that is
// behind.
func TestNoChangeIsMissed(t *testing.T) {
	waiting(t, func(t *testing.T, w *world, same string) {
		w.memory.Pause() // the index does not follow
		release := sync.OnceFunc(w.memory.Resume)
		t.Cleanup(release)
		done := make(chan string)
		go func() {
			done <- w.do("PUT", nodeURL("n"), nodeOf(clientA, "changed")).Header.Get("ETag")
		}()
		a := w.poll(t, asA, same, wait20)
		a.waits()
		release()
		etag := <-done
		a.is(200, 0, "wait=20")
		equal(t, "the ETag", a.header.Get("ETag"), etag)
	})
}

// The server's own shorter timeouts end neither a wait nor the connection after it.
func TestAWaitOutlivesTheServersTimeouts(t *testing.T) {
	t.Parallel()
	for _, proto := range []int{1, 2} {
		w := newWorld(t)
		w.register("")
		r, _ := w.settles(201, "PUT", nodeURL("n"), nodeOf(clientA, "x"))
		server := httptest.NewUnstartedServer(w.front)
		server.EnableHTTP2 = proto == 2
		server.Config.ReadTimeout = 300 * time.Millisecond
		server.Config.WriteTimeout = 300 * time.Millisecond
		server.StartTLS()
		t.Cleanup(server.Close)
		for range 2 {
			request := must(http.NewRequest(http.MethodGet, server.URL+nodeURL("n"), nil))
			request.Header.Set("If-None-Match", r.Header.Get("ETag"))
			request.Header.Set("Prefer", "wait=1")
			response := must(server.Client().Do(request))
			response.Body.Close()
			shows(t, "the answer", fmt.Sprint("304 ", proto, " wait=1"), response.StatusCode,
				response.ProtoMajor, response.Header.Get("Preference-Applied"))
		}
	}
}

// calls counts the calls to the world's store from now on, by kind; "" is any that a request makes.
func (w *world) calls() func(op string) int {
	var mu sync.Mutex
	n := map[string]int{}
	w.memory.Before(func(c storetest.Call) error {
		mu.Lock()
		defer mu.Unlock()
		if n[c.Op]++; c.Op != "follow" && c.Op != "changes" {
			n[""]++
		}
		return nil
	})
	w.t.Cleanup(func() { w.memory.Before(nil) })
	return func(op string) int {
		mu.Lock()
		defer mu.Unlock()
		return n[op]
	}
}

// A DELETE that waits for its cluster does not read the store meanwhile.
func TestDeleteDoesNotPoll(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.must(201, "PUT", nodeURL("n")+"&configUrl=true", withToken)
		w.cluster.isDown.Store(true)
		w.api.Patience = time.Minute
		calls := w.calls()
		var deleting sync.WaitGroup
		deleting.Go(func() { w.must(200, "DELETE", nodeURL("n"), "") })
		time.Sleep(time.Second) // it waits by then
		before := calls("read")
		time.Sleep(w.api.Patience - 2*time.Second)
		equal(t, "the reads while it waited", calls("read"), before)
		// Five reads are its own, and seven are of the worker that revokes the credential. They read
		// again where a commit is refused, which does not count, since the other has written first.
		if deleting.Wait(); calls("read") > 24*calls("commit") {
			t.Errorf("%d reads for %d commits", calls("read"), calls("commit"))
		}
	})
}

// PUTs that wait for their cluster open no watch: they get changes from the process' index.
func TestPutsWaitTogether(t *testing.T) {
	w := newEdge(t)
	w.cluster.isDown.Store(true)
	w.api.Patience = 3 * time.Second
	calls := w.calls()
	var running sync.WaitGroup
	for i := range 10 {
		running.Go(func() {
			w.must(201, "PUT", nodeURL(fmt.Sprintf("n%d", i))+"&configUrl=true", withToken)
		})
	}
	running.Wait()
	equal(t, "watches that they have opened", calls("follow"), 0)
}

// BenchmarkLongPoll has 3,000 waiting agents, and changes each node once by a PUT, 300 in a second:
// wake-ms is the p99 from the answer of the PUT to that of the poll, bytes/waiter the memory of a
// poll.
func BenchmarkLongPoll(b *testing.B) {
	const nodes, perSecond = 3000, 300
	w := newWorld(b)
	w.register("")
	w.settles(201, "PUT", nodeURL("n"), withManaged)
	w.api.Waiters = NewWaiters(10*time.Minute, nodes)
	w.index.Subscribe(w.api.Waiters.Wake)
	w.copyNode(nodes)
	for round := 0; b.Loop(); round++ {
		w.reportAll(nodes)
		before := heapInUse()
		committed, answered := make([]time.Time, nodes), make([]time.Time, nodes)
		var polls sync.WaitGroup
		for i := range nodes {
			polls.Go(func() {
				w.pollOnce(b, i)
				answered[i] = time.Now()
			})
		}
		w.until("all wait", func() bool { return w.api.Waiters.Count() == nodes })
		b.ReportMetric(float64(heapInUse()-before)/nodes, "bytes/waiter")
		tick := time.NewTicker(time.Second / perSecond * 10)
		for i := range nodes {
			if i%10 == 0 {
				<-tick.C
			}
			w.must(200, http.MethodPut, nodeURL(copyName(i)),
				strings.Replace(withManaged, "prod", fmt.Sprint("v", round), 1))
			committed[i] = time.Now()
		}
		tick.Stop()
		polls.Wait()
		took := make([]time.Duration, nodes)
		for i := range took {
			took[i] = answered[i].Sub(committed[i])
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[nodes*99/100].Microseconds())/1000, "wake-ms")
		b.ReportMetric(float64(took[nodes/2].Microseconds())/1000, "wake-p50-ms")
	}
}

func copyName(i int) string { return fmt.Sprintf("copy-%05d", i) }

// copyNode stores so many copies of the node n.
func (w *world) copyNode(nodes int) {
	n := w.storedNode("n")
	history := must(w.api.Store.History.Get(w.t.Context(), clusterKey+"/n"))
	w.eachCopy(nodes, func(v *store.View, key string) error {
		return errors.Join(w.api.Store.History.Set(v, key, history.Value),
			w.api.Store.Nodes.Set(v, key, n))
	})
}

// eachCopy changes the rows of each copy.
func (w *world) eachCopy(nodes int, with func(v *store.View, key string) error) {
	for i := range nodes {
		w.changeOnly(func(v *store.View) error { return with(v, clusterKey+"/"+copyName(i)) })
	}
	w.caughtUp()
}

func (w *world) changeOnly(decide func(*store.View) error) {
	must(w.api.Store.Update(w.t.Context(), "test", nil, decide))
}

// reportAll reports as the agents of the copies that they run what they are offered.
func (w *world) reportAll(nodes int) {
	w.eachCopy(nodes, func(v *store.View, key string) error {
		var s flexnode.Status
		assigned := w.api.Store.Nodes.Row(v, key).Value.Assigned
		s.Report.AppliedConfigVersion = flexnode.ShownVersion(assigned)
		return w.api.Store.Status.Put(v, key, s)
	})
}

// pollOnce polls a node as its agent and expects a change.
func (w *world) pollOnce(b *testing.B, i int) {
	poll, _ := w.index.Poll(clusterKey + "/" + copyName(i))
	recorder := w.serve(http.MethodGet, nodeURL(copyName(i)), "",
		uidHeader+": "+poll.UID, "If-None-Match: "+poll.ETag, "Prefer: wait=600")
	if recorder.Code != http.StatusOK {
		b.Errorf("%d: %s", recorder.Code, recorder.Body)
	}
}

// heapInUse returns the memory of heap and stacks.
func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
