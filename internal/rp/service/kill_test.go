package service

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// story holds requests to the provider: before is acknowledged, during may be interrupted.
type story struct {
	name           string
	before, during func(*world) *http.Response
	exists         bool // the node, after during, if that was acknowledged
}

func sends(method, url, body string) func(*world) *http.Response {
	return func(w *world) *http.Response { return w.do(method, url, body) }
}

var (
	created  = sends("PUT", nodeURL("n")+"&configUrl=true", withToken)
	replaced = sends("PUT", nodeURL("n")+"&configUrl=true", `{"properties":{}}`)
)

var stories = []story{
	{"create", nil, created, true},
	{"replace", created, replaced, true},
	{"regenerate", created, sends("POST", nodeURL("n", "/regenerateToken"), "{}"), true},
	{"roll back", func(w *world) *http.Response {
		created(w)
		return replaced(w)
	}, func(w *world) *http.Response {
		history := list(w.t, w.store.History)
		all := must(history[0].Value.All())
		return w.do("POST", nodeURL("n", "/rollback"),
			fmt.Sprintf(`{"configVersion":"%d"}`, all[len(all)-1].Version))
	}, true},
	{"first URL", sends("PUT", nodeURL("n"), withToken),
		sends("POST", nodeURL("n", "/listConfigUrl"), "{}"), true},
	{"delete", created, sends("DELETE", nodeURL("n"), ""), false},
}

// The provider is killed after each lasting effect: the next replica finishes. No Secret or URL is
// without a row, and nothing acknowledged is lost.
func TestKilledAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a run for each write takes long; make test has it")
	}
	for _, s := range stories {
		points := killedAt(t, s, 0)
		if points < 3 {
			t.Errorf("%s does %d things only", s.name, points)
		}
		for n := 1; n <= points; n++ {
			t.Run(fmt.Sprintf("%s/%d", s.name, n), func(t *testing.T) { killedAt(t, s, n) })
		}
	}
}

// killedAt runs a story with a kill after the n-th effect, never for 0, and returns their number.
func killedAt(t *testing.T, s story, n int) (did int) {
	t.Helper()
	inWorld(t, func(t *testing.T, w *world) {
		var urls []string
		remember := func(r *http.Response) {
			var answer struct {
				ConfigURL  string
				Properties struct{ ConfigURL string }
			}
			if json.Unmarshal(must(io.ReadAll(r.Body)), &answer) == nil {
				urls = append(urls, answer.ConfigURL+answer.Properties.ConfigURL)
			}
		}
		if s.before != nil {
			remember(s.before(w))
		}
		pass(time.Second)
		end := w.killAfter(n)
		response := s.during(w)
		remember(response)
		pass(time.Second)
		acknowledged := response.StatusCode < 300
		if n == 0 && !acknowledged {
			t.Fatalf("the story failed without a kill: %d", response.StatusCode)
		}
		did = end()
		if n > 0 {
			w.drain()
			w.start(w.memory.Another())
		}
		pass(21 * time.Minute)
		w.consistent(urls)
		w.checkNode(acknowledged, s.exists)
	})
	return did
}

// killAfter kills the replica after the n-th effect from now on, until end, which returns the
// number of effects.
func (w *world) killAfter(n int) (end func() int) {
	var mu sync.Mutex
	did, ended, kill := 0, false, w.kill
	w.service.store.Did = func(what string) {
		mu.Lock()
		defer mu.Unlock()
		if did++; did == n && !ended {
			w.t.Logf("killed after: %s", what)
			kill()
		}
	}
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		ended = true
		return did
	}
}

// checkNode checks that acknowledged changes hold, and that nothing is waited for without end.
func (w *world) checkNode(acknowledged, exists bool) {
	w.t.Helper()
	response := w.do("GET", nodeURL("n"), "")
	if acknowledged && (response.StatusCode == 200) != exists {
		w.t.Errorf("after an acknowledged story GET says %d", response.StatusCode)
	}
	if response.StatusCode != 200 {
		return
	}
	p := shownNode(w.t, string(must(io.ReadAll(response.Body)))).Properties
	equal(w.t, "the node remains", p.ProvisioningState, api.Succeeded)
}

// consistent checks that cluster, store and URLs agree.
func (w *world) consistent(urls []string) {
	w.t.Helper()
	var tokens, live, bundles, secrets []string
	for _, c := range list(w.t, w.store.Credentials) {
		node := must(w.store.Nodes.Get(w.t.Context(), c.Value.Node))
		equal(w.t, "a credential is left", c.Value.State, store.Live)
		equal(w.t, "its node has", node.Value.Credential, c.Key)
		tokens = append(tokens, "bootstrap-token-"+c.Value.TokenID)
		live = append(live, c.Key)
	}
	for _, s := range w.cluster.Secrets() {
		secrets = append(secrets, s.Name)
	}
	slices.Sort(secrets)
	slices.Sort(tokens)
	equal(w.t, "the Secrets", fmt.Sprint(secrets), fmt.Sprint(tokens))
	equal(w.t, "tokens that are remembered", len(list(w.t, w.store.Tokens)), len(tokens))
	for _, b := range list(w.t, w.store.Bundles) {
		bundles = append(bundles, b.Key)
	}
	equal(w.t, "the bundles", fmt.Sprint(bundles), fmt.Sprint(live))
	for _, u := range urls {
		want := slices.ContainsFunc(live, func(key string) bool { return strings.Contains(u, key) })
		equal(w.t, "a URL works", w.do("GET", path(u), "").StatusCode == 200, want)
	}
}

// list returns all rows of a table.
func list[T any](t testing.TB, table store.Table[T]) []store.Row[T] {
	t.Helper()
	rows, _, err := table.List(t.Context(), "")
	must(0, err)
	return rows
}
