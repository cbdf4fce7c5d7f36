package credential

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// story holds the changes of a node: before has finished, during may be interrupted.
type story struct {
	name           string
	before, during func(*world) error
}

func created(w *world) error {
	if err := w.put(withToken, true, true); err != nil {
		return err
	}
	return w.step()
}

// joined uses the node's token, like a machine.
func joined(w *world) error {
	c := w.credential(w.node().Credential)
	a := Application{TokenID: c.TokenID, Node: "edge-1", KeyHash: "k", Name: "csr"}
	ctx, key := w.t.Context(), w.node().Credential
	return errors.Join(w.service.Consume(ctx, key, a, store.Condition{}), w.step(),
		w.service.Issued(ctx, key, "csr", store.Condition{}))
}

// then returns a change of the node followed by a step of the reconciler.
func then(do func(*world) error) func(*world) error {
	return func(w *world) error { return errors.Join(do(w), w.step()) }
}

// putting returns a PUT, with or without a URL.
func putting(d flexnode.Desired, url bool) func(*world) error {
	return func(w *world) error { return w.put(d, url, true) }
}

var stories = []story{
	{"create", nil, created},
	{"replace", created, then(putting(labelled(withToken, "x"), true))},
	{"replace without URL", created, then(putting(labelled(withToken, "x"), false))},
	{"other method", created, then(putting(withPrincipal, true))},
	{"regenerate", created, then((*world).regenerate)},
	{"delete", created, then((*world).delete)},
	{"new facts", created, then(func(w *world) error {
		return w.moveCluster("https://moved.example")
	})},
	{"consume", created, then(then(func(w *world) error {
		err := joined(w)
		w.clock.Pass(Grace)
		return err
	}))},
	{"id is taken", nil, then(func(w *world) error {
		err := w.put(withToken, true, true)
		id := w.credential(w.node().Credential).TokenID
		if _, ours := w.cluster.secrets[id]; !ours {
			w.cluster.secrets[id] = fakeSecret{owner: "another"}
		}
		return err
	})},
}

// killed ends a replica.
type killed struct{}

var errInjected = errors.New("injected")

// points controls the points before and after each effect.
type points struct {
	n, k int // at the k-th point, from 1; 0 is never
	do   func(what string) error
}

func (p *points) at(what string) error {
	if p.n++; p.n == p.k {
		return p.do(what)
	}
	return nil
}

// watch adds points around each effect of a world's replica.
func (p *points) watch(w *world) {
	w.memory.Before(func(c storetest.Call) error {
		if c.Op == "commit" {
			return p.at("before commit")
		}
		return nil
	})
	w.memory.After(func(storetest.Call) error { return p.at("after commit") })
	w.cluster.at = p.at
	w.service.Store.Did = func(string) { _ = p.at("did") }
}

// unwatch removes them.
func (w *world) unwatch() {
	w.memory.Before(nil)
	w.memory.After(nil)
	w.cluster.at = nothing
	w.service.Store.Did = func(string) {}
}

// After a kill or failure before or after each effect, the next replica finishes, and nothing is
// left. There is never a bundle without a live credential.
func TestKilledAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a run for each write takes long; make test has it")
	}
	t.Parallel()
	ends := map[string]func(string) error{
		"killed": func(string) error { panic(killed{}) },
		"failed": func(string) error { return errInjected },
	}
	for _, s := range stories {
		total := tell(t, s, &points{})
		if total < 6 {
			t.Errorf("%s does %d things only", s.name, total)
		}
		for end, do := range ends {
			for k := 1; k <= total; k++ {
				t.Run(fmt.Sprintf("%s/%s/%d", s.name, end, k), func(t *testing.T) {
					t.Parallel()
					tell(t, s, &points{k: k, do: func(what string) error {
						t.Logf("%s %s", end, what)
						return do(what)
					}})
				})
			}
		}
	}
}

// tell runs a story with points, lets another replica finish it, and checks the result. It returns
// the number of points.
func tell(t *testing.T, s story, p *points) int {
	t.Helper()
	w := newWorld(t)
	var urls []string
	if s.before != nil {
		must(0, s.before(w))
		w.work()
		urls = append(urls, w.url())
	}
	p.watch(w)
	func() {
		defer func() {
			if e := recover(); e != nil {
				if _, ok := e.(killed); !ok {
					panic(e)
				}
			}
		}()
		if err := s.during(w); err != nil && p.k == 0 {
			t.Fatalf("%s: %v", s.name, err)
		}
	}()
	w.unwatch()
	w.start(w.memory.Another())
	w.settle(urls)
	return p.n
}

// settle makes the reconciler finish, also for machines that are joining, and checks the result
// when the Secret of another owner is gone, too.
func (w *world) settle(urls []string) {
	w.t.Helper()
	w.work()
	maps.DeleteFunc(w.cluster.secrets, func(_ string, s fakeSecret) bool {
		return s.owner == "another"
	})
	w.clock.Pass(Joining)
	w.work()
	w.consistent(append(urls, w.url()))
}

// Two workers, a paused replica and its successor: whatever the second does while the first is
// anywhere in its work, nothing unknown is left, although the first resumes with stale data. These
// are M12's races: a Secret made after its credential was removed, and a bundle written after that.
func TestWhatHappensMeanwhile(t *testing.T) {
	t.Parallel()
	meanwhile := map[string]func(*world) error{
		"revoke":     putting(labelled(withToken, "y"), false),
		"replace":    putting(withPrincipal, true),
		"regenerate": (*world).regenerate,
		"delete":     (*world).delete,
		"nothing":    func(*world) error { return nil },
	}
	for _, s := range stories {
		total := tell(t, s, &points{})
		for name, do := range meanwhile {
			for k := 1; k <= total; k++ {
				t.Run(fmt.Sprintf("%s/%s/%d", s.name, name, k), func(t *testing.T) {
					t.Parallel()
					tellBeside(t, s, k, do)
				})
			}
		}
	}
}

// tellBeside runs a story; at a point another replica makes a change and works until nothing is
// left to do.
func tellBeside(t *testing.T, s story, k int, do func(*world) error) {
	t.Helper()
	w := newWorld(t)
	if s.before != nil {
		must(0, s.before(w))
		w.work()
	}
	p := &points{k: k}
	p.do = func(what string) error {
		t.Logf("another replica works %s", what)
		other := w.another()
		if !get(other, other.store().Nodes, nodeKey).Exists() {
			return nil
		}
		if err := do(other); err != nil {
			return err
		}
		for range 4 {
			if err := other.step(); err != nil {
				return err
			}
		}
		w.version = other.version
		return nil
	}
	p.watch(w)
	err := s.during(w)
	w.unwatch()
	if err != nil {
		t.Logf("%s: %v", s.name, err)
	}
	w.settle(nil)
}

// No revision of the store has a bundle of a credential that is not live.
func TestBundlesAreOnlyThereWhileLive(t *testing.T) {
	t.Parallel()
	for _, s := range stories {
		w := newWorld(t)
		other := w.another()
		w.memory.After(func(storetest.Call) error {
			for _, b := range list(other, other.store().Bundles) {
				equal(t, s.name+": a credential with a bundle", other.credential(b.Key).State, store.Live)
			}
			return nil
		})
		if s.before != nil {
			must(0, s.before(w))
		}
		must(0, s.during(w))
		w.work()
	}
}

// A worker whose fence does not hold any more writes nothing.
func TestAFencedWorkerWritesNothing(t *testing.T) {
	w, ctx := beside(t), t.Context()
	must(0, w.put(withToken, true, true))
	fence := store.Condition{Key: w.store().Meta.Key("owner"), Revision: 7}
	key := w.node().Credential
	_, err := w.service.Step(ctx, key, w.cluster, fence)
	equal(t, "a step is fenced", errors.Is(err, store.ErrFenced), true)
	equal(t, "its state", w.credential(key).State, store.Pending)
	a := Application{TokenID: w.credential(key).TokenID, Node: "edge-1"}
	err = w.service.Consume(ctx, key, a, fence)
	equal(t, "the use is fenced", errors.Is(err, store.ErrFenced), true)
	equal(t, "what was not written is in the audit log",
		strings.Contains(w.audit.String(), "consumed"), false)
}
