package follow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/AKSFlexNode/api/flexnode/agentapi"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/signing"
)

const (
	nodeID  = "/subscriptions/s/resourceGroups/g/providers/P/managedClusters/c/flexNodeConfig/edge-1"
	nodeUID = "6b1f7a52-32ab-4a6c-9f5f-0d9f10a6f001"
)

// shared is the lock of both fakes, which a test and its Follower look at and change.
type shared struct{ mutex sync.Mutex }

// locked does something under the lock. It must not sleep: simulated time stands still while a
// goroutine waits for a mutex.
func (s *shared) locked(do func()) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	do()
}

// provider answers polls of one node; version "" is a node that was deleted.
type provider struct {
	*shared
	version string
	uid     string // of the tombstone
	handle  http.HandlerFunc
	polls   []time.Time
	wait    []string
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var version, uid string
	var handle http.HandlerFunc
	p.locked(func() {
		p.polls = append(p.polls, time.Now())
		p.wait = append(p.wait, r.Header.Get("Prefer"))
		version, uid, handle = p.version, p.uid, p.handle
	})
	switch {
	case handle != nil:
		handle(w, r)
	case version == "":
		tombstone(uid)(w, r)
	case r.Header.Get("If-None-Match") == version:
		w.WriteHeader(http.StatusNotModified)
	default:
		w.Header().Set("ETag", version)
		answer(200, "application/json", fmt.Sprintf(`{"id":%q,"properties":{"configVersion":%q,
			"resourceUid":%q}}`, nodeID, version, nodeUID))(w, r)
	}
}

// stone is the tombstone of a node that was in version 5, signed under a root.
func (r testRoot) stone(uid string) agentapi.Tombstone {
	stone := agentapi.Tombstone{UID: uid, ConfigVersion: "5", Epoch: 1, DeletedAt: time.Now().UTC()}
	stone.Signature = r.sign(signing.Statement{
		Kind: signing.Tombstone, UID: uid, Version: "5", Epoch: 1,
		Content: []byte(stone.DeletedAt.Format(time.RFC3339Nano)),
	})
	return stone
}

func tombstone(uid string) http.HandlerFunc { return shown(trusted().stone(uid)) }

func shown(stone agentapi.Tombstone) http.HandlerFunc {
	text, err := json.Marshal(stone)
	if err != nil {
		panic(err)
	}
	return answer(404, "application/json", fmt.Sprintf(`{"error":{"code":"ResourceNotFound",
		"additionalInfo":[{"type":"FlexNodeConfigTombstone","info":%s}]}}`, text))
}

// asked returns the number of polls of the provider.
func (p *provider) asked() (n int) {
	p.locked(func() { n = len(p.polls) })
	return n
}

// answers has polls answered by a handler, which runs without the lock and may sleep.
func (p *provider) answers(handle http.HandlerFunc) {
	p.locked(func() { p.handle = handle })
}

// fakeMachine takes down what happens to it.
type fakeMachine struct {
	*shared
	received, applied config.Resource
	offer             config.Resource
	refuse            error
	fetches           int
	took              []string
	unusable          string
	why               error
	deleted, stays    bool
	failed            error // what the last poll has ended with
	fetch             func(context.Context) error
}

func (m *fakeMachine) Offers() (received, applied config.Resource) {
	m.locked(func() { received, applied = m.received, m.applied })
	return received, applied
}

func (m *fakeMachine) Fetch(ctx context.Context) (bundle []byte, of config.Resource, err error) {
	var fetch func(context.Context) error
	m.locked(func() {
		m.fetches++
		bundle, of, fetch = []byte(m.offer.ConfigVersion), m.offer, m.fetch
	})
	if fetch != nil {
		err = fetch(ctx)
	}
	return bundle, of, err
}

func (m *fakeMachine) Receive(_ context.Context, bundle []byte) (err error) {
	m.locked(func() {
		if err = m.refuse; err == nil {
			m.took = append(m.took, string(bundle))
			m.received = m.offer
		}
	})
	return err
}

func (m *fakeMachine) Unusable(version string, why error) {
	m.locked(func() {
		if m.unusable, m.why = version, why; why == nil {
			m.unusable = ""
		}
	})
}

func (m *fakeMachine) Deleted() (leaves bool) {
	m.locked(func() { m.deleted, leaves = true, !m.stays })
	return leaves
}

func offer(version string) config.Resource {
	return config.Resource{UID: nodeUID, ConfigVersion: version, Epoch: 1}
}

// following runs a Follower of a machine that runs on version 5, in simulated time.
func following(t *testing.T, tell func(t *testing.T, p *provider, m *fakeMachine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		both := &shared{}
		p := &provider{shared: both, version: "5", uid: nodeUID}
		m := &fakeMachine{
			shared: both, received: offer("5"), applied: offer("5"), offer: offer("5"),
		}
		client := NewClient(nil, nil)
		client.Transport = breaking{roundTrip{p}}
		f := &Follower{
			Resource: &Resource{
				Client: client, Endpoint: "https://arm.example/", ID: nodeID, UID: nodeUID,
				Token: func(context.Context) (string, error) { return "token", nil },
			},
			Machine: m, Root: trusted().root.Certificate, Wait: 25 * time.Second,
			Log: slog.New(slog.DiscardHandler),
			Told: func(_ Answer, err error, _ time.Duration) {
				m.locked(func() { m.failed = err })
			},
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { f.Run(ctx); close(ended) }()
		tell(t, p, m)
		stop()
		<-ended
	})
}

func TestFollowerTakesWhatIsNew(t *testing.T) {
	following(t, func(t *testing.T, p *provider, m *fakeMachine) {
		time.Sleep(10 * time.Minute)
		p.locked(func() {
			if m.fetches != 0 || len(p.polls) < 14 || len(p.polls) > 32 {
				t.Errorf("nothing was new: %d fetches, %d polls", m.fetches, len(p.polls))
			}
			p.version, m.offer = "7", offer("7")
		})
		time.Sleep(41 * time.Second)
		m.locked(func() {
			if len(m.took) != 1 || m.took[0] != "7" || m.fetches != 1 {
				t.Errorf("took %q with %d fetches", m.took, m.fetches)
			}
		})
	})
}

// A provider that offers what the node runs on, since what it had offered does not work, is
// followed without another fetch.
func TestFollowerGoesBackToWhatIsApplied(t *testing.T) {
	following(t, func(t *testing.T, p *provider, m *fakeMachine) {
		m.locked(func() { m.received = offer("9") })
		time.Sleep(time.Minute)
		m.locked(func() {
			if m.fetches != 0 {
				t.Errorf("fetched %d times", m.fetches)
			}
		})
	})
}

func TestFollowerRefuses(t *testing.T) {
	for name, o := range map[string]config.Resource{
		"backwards": offer("4"), "far backwards": offer("0000004"),
		"another uid":   {UID: "another", ConfigVersion: "8", Epoch: 1},
		"older epoch":   {UID: nodeUID, ConfigVersion: "8", Epoch: 0},
		"unusable text": offer("8"),
	} {
		t.Run(name, func(t *testing.T) {
			following(t, func(t *testing.T, p *provider, m *fakeMachine) {
				p.locked(func() {
					if name == "unusable text" {
						m.refuse = &UnusableError{errors.New("it is no configuration")}
					}
					p.version, m.offer = "8", o
				})
				time.Sleep(10 * time.Minute)
				p.locked(func() {
					if len(m.took) != 0 || m.fetches != 1 || m.unusable != "8" {
						t.Errorf("took %q with %d fetches", m.took, m.fetches)
					}
					p.version, m.offer, m.refuse = "11", offer("11"), nil
				})
				time.Sleep(time.Minute)
				m.locked(func() {
					if len(m.took) != 1 {
						t.Errorf("the next one was not taken")
					}
				})
			})
		})
	}
}

// A provider that was restored from a backup does not take a node back: the configurations that are
// made afterwards have later versions.
func TestFollowerAfterARestore(t *testing.T) {
	following(t, func(t *testing.T, p *provider, m *fakeMachine) {
		p.locked(func() {
			p.version, m.offer = "3", config.Resource{UID: nodeUID, ConfigVersion: "3", Epoch: 2}
		})
		time.Sleep(time.Minute)
		m.locked(func() {
			if len(m.took) != 0 {
				t.Errorf("an older configuration of a later epoch was taken")
			}
			p.version, m.offer = "11", config.Resource{UID: nodeUID, ConfigVersion: "11", Epoch: 2}
		})
		time.Sleep(time.Minute)
		m.locked(func() {
			if len(m.took) != 1 {
				t.Errorf("a later configuration of a later epoch was not taken")
			}
		})
	})
}

// Only two tombstones of this very node, one after the other, give a machine back.
func TestFollowerDeleted(t *testing.T) {
	notFound := answer(404, "application/json", `{"error":{"code":"ResourceNotFound"}}`)
	following(t, func(t *testing.T, p *provider, m *fakeMachine) {
		time.Sleep(time.Minute)
		p.locked(func() {
			p.version, p.uid = "", "0d7e0f2c-1111-2222-3333-444455556666" // of another node
		})
		time.Sleep(24 * time.Hour)
		p.locked(func() { p.uid = "" })
		time.Sleep(24 * time.Hour)
		for _, status := range []int{404, 401, 403, 500, 410} {
			p.answers(answer(status, "application/json", `{"error":{"code":"X"}}`))
			time.Sleep(7 * 24 * time.Hour)
		}
		p.answers(answer(404, "text/html", "<html>"))
		time.Sleep(time.Hour)
		asked := p.asked()
		p.locked(func() { p.uid = nodeUID })
		p.answers(func(w http.ResponseWriter, r *http.Request) {
			if p.asked()%2 == 0 { // one tombstone, and something else, by turns
				notFound(w, r)
				return
			}
			tombstone(nodeUID)(w, r)
		})
		time.Sleep(time.Hour)
		p.locked(func() {
			if m.deleted || len(p.polls) < asked+10 {
				t.Fatalf("deleted=%t after %d polls", m.deleted, len(p.polls)-asked)
			}
			p.handle = nil
		})
		time.Sleep(6 * time.Minute)
		m.locked(func() {
			if !m.deleted {
				t.Error("two tombstones of this node do not count")
			}
		})
	})
}

// A machine whose owner does not let a provider decide is not given back, and goes on asking: it is
// as soon as its owner lets it, and it follows a resource that is there again.
func TestFollowerDeletedAndKept(t *testing.T) {
	following(t, func(t *testing.T, p *provider, m *fakeMachine) {
		time.Sleep(time.Minute)
		p.locked(func() { p.version, m.stays = "", true })
		time.Sleep(time.Hour)
		asked := p.asked()
		p.locked(func() {
			if !m.deleted || len(p.polls) < 60 || len(p.polls) > 240 {
				t.Errorf("deleted=%t after %d polls", m.deleted, len(p.polls))
			}
			p.version, m.offer = "7", offer("7")
		})
		time.Sleep(2 * time.Minute)
		p.locked(func() {
			if len(m.took) != 1 {
				t.Errorf("took %q", m.took)
			}
			p.version, m.stays, m.deleted = "", false, false
		})
		time.Sleep(2 * time.Minute)
		m.locked(func() {
			if !m.deleted {
				t.Error("it is not given back")
			}
		})
		if before := p.asked(); before <= asked {
			t.Errorf("asked %d times", before)
		}
		time.Sleep(time.Hour)
		p.locked(func() { asked = len(p.polls) })
		time.Sleep(time.Hour)
		if now := p.asked(); now != asked {
			t.Errorf("it went on asking: %d, %d", asked, now)
		}
	})
}

// An outage of weeks is asked through at a slow pace, and its end is noticed within minutes.
func TestFollowerOutage(t *testing.T) {
	following(t, func(t *testing.T, p *provider, m *fakeMachine) {
		p.answers(func(http.ResponseWriter, *http.Request) { panic("no network") })
		time.Sleep(21 * 24 * time.Hour)
		if n := p.asked(); n < 21*24*60/7 || n > 21*24*60/3 {
			t.Errorf("asked %d times in three weeks", n)
		}
		p.locked(func() { p.handle, p.version, m.offer = nil, "6", offer("6") })
		time.Sleep(maxPause)
		m.locked(func() {
			if len(m.took) != 1 {
				t.Error("the end of the outage was not noticed")
			}
		})
	})
}

// A provider that holds polls back is asked again at once; one that does not, at its interval.
func TestFollowerLongPoll(t *testing.T) {
	following(t, func(t *testing.T, p *provider, _ *fakeMachine) {
		p.answers(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", "5")
			if r.Header.Get("If-None-Match") == "" {
				answer(200, "application/json", fmt.Sprintf(`{"id":%q,"properties":{"configVersion":"5",
					"resourceUid":%q}}`, strings.ToUpper(nodeID), nodeUID))(w, r)
				return
			}
			time.Sleep(25 * time.Second)
			w.Header().Set("Preference-Applied", "wait=25")
			w.WriteHeader(http.StatusNotModified)
		})
		time.Sleep(20 * time.Minute)
		p.locked(func() {
			if n := len(p.polls); n < 42 || n > 50 {
				t.Errorf("asked %d times in 20 minutes", n)
			}
			if p.wait[0] != "" || p.wait[1] != "wait=25" {
				t.Errorf("preferred %q", p.wait[:2])
			}
		})
		p.answers(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Ms-Flexnode-Poll-Interval", "300")
			w.WriteHeader(http.StatusNotModified)
		})
		time.Sleep(time.Minute)
		before := p.asked()
		time.Sleep(time.Hour)
		if n := p.asked() - before; n < 9 || n > 19 {
			t.Errorf("asked %d times in an hour at an interval of 300 s", n)
		}
	})
}

// A gateway that ends held polls makes the follower poll without them, up to an hour, and then try
// one again. A single end, as when the provider restarts, costs one poll.
func TestFollowerBehindAGateway(t *testing.T) {
	following(t, func(t *testing.T, p *provider, m *fakeMachine) {
		time.Sleep(leastInterval) // the first poll
		ends := math.MaxInt
		p.answers(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Prefer") != "" {
				time.Sleep(20 * time.Second)
				ended := false
				p.locked(func() { ended, ends = ends > 0, max(ends-1, 0) })
				if ended {
					answer(504, "text/html", "<html>")(w, r)
					return
				}
				w.Header().Set("Preference-Applied", "wait=20")
			}
			w.WriteHeader(http.StatusNotModified)
		})
		held := func(rest time.Duration) (is string) {
			before := p.asked()
			time.Sleep(rest)
			p.locked(func() { is = strings.Join(p.wait[before:], ",") })
			return is
		}
		polls := held(6 * time.Hour)
		if n := strings.Count(polls, "w"); strings.Contains(polls, "5,w") || n < 9 || n > 14 {
			t.Errorf("%d held polls in 6 hours: %s", n, polls)
		}
		p.locked(func() { ends = 0 })
		time.Sleep(time.Hour)
		p.locked(func() { ends = 1 })
		polls = strings.TrimPrefix(held(10*time.Minute), ",") // the one that ends is under way
		if strings.Contains(polls, ",,") || strings.Count(polls, "w") < 20 {
			t.Errorf("after one end: %s", polls)
		}
	})
}

// Machines that start together ask at different times.
func TestPaceSpreads(t *testing.T) {
	var early int
	for range 1000 {
		p := pace{}
		if first := p.first(); first < 0 || first >= leastInterval {
			t.Fatalf("the first pause is %s", first)
		} else if first < leastInterval/2 {
			early++
		}
		if d := p.after(Answer{}); d < 20*time.Second || d >= 40*time.Second {
			t.Fatalf("a pause is %s", d)
		}
	}
	if early < 400 || early > 600 {
		t.Errorf("%d of 1000 ask within the first half", early)
	}
}

// One failure, as while the provider restarts, costs seconds; an outage is not polled often.
func TestPaceAfterFailures(t *testing.T) {
	p := pace{}
	for i := range 6 {
		most := 5 * time.Second << i
		if d := p.afterError(errors.New("no network")); d < most/2 || d >= most {
			t.Errorf("the pause after failure %d is %s", i+1, d)
		}
	}
	p.after(Answer{})
	if d := p.afterError(errors.New("no network")); d >= leastInterval {
		t.Errorf("the pause after a success and a failure is %s", d)
	}
}

func TestPaceKeepsToRetryAfter(t *testing.T) {
	p := pace{}
	if d := p.afterError(&RefusedError{Pause: 4 * time.Minute}); d < 4*time.Minute {
		t.Errorf("the pause is %s", d)
	}
	for range 40 {
		if d := p.afterError(errors.New("no network")); d > maxPause {
			t.Errorf("the pause is %s", d)
		}
	}
}

// The first poll, which knows no ETag, is never held back: the next one, which is, follows at once.
func TestFollowerIsHeldBackSoon(t *testing.T) {
	following(t, func(t *testing.T, p *provider, _ *fakeMachine) {
		time.Sleep(41 * time.Second)
		p.locked(func() {
			if len(p.polls) < 2 || p.wait[0] != "" || p.wait[1] != "wait=25" ||
				p.polls[1].Sub(p.polls[0]) > time.Second {
				t.Errorf("polls at %s, which prefer %q", p.polls, p.wait)
			}
		})
	})
}

// A poll or a fetch that is given up since the caller ends the following is not reported as a
// failed poll.
func TestFollowerEnds(t *testing.T) {
	var machine *fakeMachine
	following(t, func(t *testing.T, p *provider, m *fakeMachine) {
		time.Sleep(time.Minute)
		held := make(chan struct{})
		p.answers(func(_ http.ResponseWriter, r *http.Request) {
			close(held)
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		})
		<-held
		machine = m
	})
	if machine.failed != nil {
		t.Errorf("it tells %v", machine.failed)
	}
	following(t, func(t *testing.T, p *provider, m *fakeMachine) {
		time.Sleep(time.Minute)
		held := make(chan struct{})
		m.locked(func() {
			p.version, machine = "7", m
			m.fetch = func(ctx context.Context) error {
				close(held)
				<-ctx.Done()
				return ctx.Err()
			}
		})
		<-held
	})
	if machine.failed != nil {
		t.Errorf("it tells %v", machine.failed)
	}
}

// reporterTo is a reporter to a provider, with its log.
func reporterTo(provider http.HandlerFunc) (*Reporter, *strings.Builder) {
	client := NewClient(nil, nil)
	client.Transport = breaking{roundTrip{provider}}
	log := new(strings.Builder)
	return NewReporter(&Resource{Client: client, Endpoint: "https://provider.example", ID: nodeID,
		Token: func(context.Context) (string, error) { return "token", nil },
	}, slog.New(slog.NewTextHandler(log, nil))), log
}

// A node that was not checked for a while is not reported to be as it was.
func TestOldReportIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r, _ := reporterTo(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			answer(200, "application/json", "{}")(w, r)
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { r.Run(ctx); close(ended) }()
		for range 3 * 60 { // three hours of checks
			r.Say(agentapi.Report{})
			time.Sleep(time.Minute)
		}
		if before := asked.Load(); before < 2 {
			t.Errorf("the node is reported %d times in three hours", before)
		}
		time.Sleep(time.Hour) // one that was due soon after the last check
		before := asked.Load()
		time.Sleep(24 * heartbeat)
		if n := asked.Load() - before; n != 0 {
			t.Errorf("a report that is old is sent %d times", n)
		}
		r.Say(agentapi.Report{})
		synctest.Wait()
		if n := asked.Load() - before; n != 1 {
			t.Errorf("a node that is looked at again is reported %d times", n)
		}
		stop()
		<-ended
	})
}

// A report that is given up since the caller ends the reporting has not failed: the next one need
// not wait.
func TestReporterEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked int
		hold := true
		r, log := reporterTo(func(w http.ResponseWriter, r *http.Request) {
			if asked++; hold {
				<-r.Context().Done()
				panic(http.ErrAbortHandler)
			}
			answer(200, "application/json", "{}")(w, r)
		})
		run := func(tell func()) {
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { r.Run(ctx); close(ended) }()
			tell()
			synctest.Wait()
			stop()
			<-ended
		}
		run(func() { r.Say(agentapi.Report{}) })
		hold = false
		run(func() { r.Say(agentapi.Report{}) })
		if asked != 2 || log.Len() > 0 {
			t.Errorf("asked %d times; the log is %q", asked, log.String())
		}
	})
}
