package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// A replica that starts on a full store answers polls, and owns clusters as soon as it can.
func TestStartWhileTheStoreIsFull(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		r, _ := w.must(201, "PUT", nodeURL("n"), withToken)
		w.memory.SetQuota(1)
		w.kill()
		w.settings.NodeDefaults = map[string]any{"node": map[string]any{"labels": map[string]any{}}}
		w.start(w.memory.Another())
		w.must(304, "GET", nodeURL("n"), "", "If-None-Match: "+r.Header.Get("ETag"))
		pass(time.Minute)
		equal(t, "what it owns without a row", len(w.membership.Owned()), 0)
		w.memory.SetQuota(0)
		pass(10 * time.Second)
		equal(t, "what it owns", len(w.membership.Owned()), 1)
		w.must(200, "PUT", nodeURL("n"), `{"properties":{}}`)
	})
}

// While a starting replica cannot work yet, every cluster keeps its owner.
func TestNoClusterWaitsForAReplicaThatStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 30
		w := newWorld(t, All)
		must(w.store.Update(t.Context(), "", nil, func(v *store.View) error {
			for i := range n {
				key := fmt.Sprintf("%s/edge/c%d", subscription, i)
				must(0, w.store.Clusters.Put(v, key, flexnode.Cluster{ID: clusterID}))
			}
			return nil
		}))
		pass(time.Second)
		slow := w.memory.Another()
		s := newService(w.settings, All, slow)
		ctx, cancel := context.WithCancel(t.Context())
		must(0, s.prepare(ctx))
		must(0, s.assemble(ctx))
		slow.Pause()
		loaded := make(chan error, 1)
		go func() { loaded <- s.load(ctx) }()
		pass(time.Minute)
		equal(t, "the clusters that have an owner", len(w.membership.Owned()), n)
		slow.Resume()
		must(0, <-loaded)
		stop := background(ctx, "the membership", func(ctx context.Context) {
			go s.index.Follow(ctx, func(error) {})
			s.membership.Run(ctx)
		})
		pass(time.Minute)
		a, b := len(w.membership.Owned()), len(s.membership.Owned())
		if a+b != n || b == 0 {
			t.Errorf("of %d clusters the first owns %d and the second %d", n, a, b)
		}
		must(0, stop(ctx))
		cancel()
	})
}

// Work that does not end does not delay the end of the program.
func TestStopsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		stop := background(t.Context(), "it", func(context.Context) { <-hangs })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if err := stop(ctx); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(began) > time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		close(hangs)
	})
}

// A running program ends, with the reason, when a newer one changes the form of the rows.
func TestAnOlderProgramEnds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		pass(time.Minute)
		s := w.service.store
		must(w.memory.Commit(t.Context(), nil,
			[]store.Write{{Key: s.Meta.Key("schema"), Value: []byte("999")}}))
		pass(time.Second)
		select {
		case err := <-w.service.fatal:
			has(t, "the error", err.Error(), "run a newer flexnode-rp")
		default:
			t.Error("it goes on")
		}
		_, text := w.must(503, "PUT", nodeURL("edge-1"), `{"properties":{}}`)
		has(t, "the refusal", text, "ProviderIsOutdated")
	})
}

// A store with nine tenths of its quota in use accepts only writes that free space or revoke
// rights.
func TestACrowdedStore(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for i := range 40 {
			w.must(201, "PUT", nodeURL(fmt.Sprint("n", i)), withToken)
		}
		long := strings.Replace(clusterID, "Edge", strings.Repeat("g", 90), 1)
		long = strings.Replace(long, "Factory", strings.Repeat("c", 63), 1)
		w.must(201, "PUT", long+versionQuery, `{"location":"westeurope","properties":{}}`)
		pass(11 * time.Minute) // until the history is compacted
		w.must(200, "POST", nodeURL("n0", "/listConfigUrl"), "{}")
		equal(t, "bootstrap tokens", len(w.cluster.Secrets()), 1)
		full := must(w.memory.Health(t.Context())).InUse
		w.memory.SetQuota(full * 100 / 93) // not at its edge: rows with times vary
		pass(2 * healthInterval)
		if err := w.health.writing(); !errors.Is(err, store.ErrCrowded) {
			t.Errorf("/readyz/write: %v", err)
		}
		_, text := w.must(503, "PUT", nodeURL("d"), withToken)
		has(t, "the refusal", text, "StoreFull")
		w.must(200, "PUT", nodeURL("n1"), withToken)
		larger := `{"properties":{"nodeConfig":{"maxPods":40,"labels":{"a":""`
		for i := range 20 {
			larger += fmt.Sprintf(`,"label-%d":"value-%d"`, i, i*i*i)
		}
		w.must(503, "PUT", nodeURL("n1"), larger+"}}}}")
		for i := range 10 { // what grows no row fills the store with history only
			w.must(200, "PUT", nodeURL("n1"), strings.Replace(withToken, "40", fmt.Sprint(50+i), 1))
			pass(time.Minute)
		}
		w.must(202, "DELETE", long+versionQuery+"&nodes=wipe", "")
		w.must(200, "DELETE", nodeURL("n0"), "")
		w.must(404, "GET", nodeURL("n0"), "")
		pass(3 * time.Minute)
		equal(t, "bootstrap tokens in the cluster after the deletion", len(w.cluster.Secrets()), 0)
		if now := must(w.memory.Health(t.Context())).InUse; now >= full {
			t.Errorf("%d bytes in use after deletions, %d before", now, full)
		}
		w.must(201, "PUT", nodeURL("d"), withToken)
	})
}

// A front answers without any controller, and owns nothing; work for a controller waits.
func TestAFrontWithoutControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		front := newWorld(t, Front)
		front.must(201, "PUT", clusterID+versionQuery, `{"location":"westeurope","properties":{}}`)
		r, text := front.must(201, "PUT", nodeURL("edge-1")+"&configUrl=true", withToken)
		if n := shownNode(t, text); n.Properties.ProvisioningState != api.Creating ||
			n.Properties.ConfigURL != "" || r.Header.Get("Azure-AsyncOperation") == "" {
			t.Errorf("the cluster was not reached: %s", text)
		}
		etag := r.Header.Get("ETag")
		front.must(304, "GET", nodeURL("edge-1"), "", "If-None-Match: "+etag)
		pass(10 * time.Minute)
		front.must(304, "GET", nodeURL("edge-1"), "", "If-None-Match: "+etag)
		front.must(200, "GET", "/readyz", "")
		front.must(200, "GET", "/readyz/write", "")
		equal(t, "what the front owns", len(front.membership.Owned()), 0)
		equal(t, "the Secrets that the front has made", len(front.cluster.Secrets()), 0)

		controller := front.another(Controller)
		pass(10 * time.Second)
		_, text = front.must(200, "GET", nodeURL("edge-1"), "")
		state := shownNode(t, text).Properties.ProvisioningState
		equal(t, "the state with a controller", state, api.Succeeded)
		equal(t, "what the controller owns", len(controller.membership.Owned()), 1)
	})
}

// A request to a front waits for a controller; each cluster has one as they come and go.
func TestFrontsAndControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		front := newWorld(t, Front)
		first := front.another(Controller)
		front.register()
		_, text := front.must(201, "PUT", nodeURL("edge-1")+"&configUrl=true", withToken)
		n := shownNode(t, text)
		if n.Properties.ProvisioningState != api.Succeeded || n.Properties.ConfigURL == "" {
			t.Fatalf("the front has not waited for the controller: %s", text)
		}
		front.join(path(n.Properties.ConfigURL))

		second, other := front.another(Controller), front.another(Front)
		pass(time.Minute)
		equal(t, "what a front owns", len(other.membership.Owned()), 0)
		if one, two := first.membership.Owned(), second.membership.Owned(); len(one)+len(two) != 1 {
			t.Errorf("the controllers own %v and %v", one, two)
		}
		first.kill()
		pass(2 * store.MemberTTL)
		equal(t, "what the controller that is left owns", len(second.membership.Owned()), 1)
		_, text = other.must(201, "PUT", nodeURL("edge-2")+"&configUrl=true", withToken)
		has(t, "the node of the second controller", shownNode(t, text).Properties.ConfigURL, "https://")
	})
}

// A controller listens only for requests about its health.
func TestListenersOfRoles(t *testing.T) {
	for role, want := range map[Role]bool{All: true, Front: true, Controller: false} {
		settings := settingsIn(t, t.TempDir())
		s := newService(settings, role, storetest.NewMemory())
		must(0, s.assemble(t.Context()))
		servers := must(s.open(t.Context()))
		for address, wanted := range map[string]bool{
			settings.Listen.Address: want, settings.MetricsAddress: true,
			settings.DebugAddress: true,
		} {
			c, err := net.Dial("tcp", address)
			if equal(t, string(role)+": "+address, err == nil, wanted); err == nil {
				_ = c.Close()
			}
		}
		response := must(http.Get("http://" + settings.MetricsAddress + "/livez"))
		_ = response.Body.Close()
		equal(t, string(role)+": livez", response.StatusCode, http.StatusOK)
		for _, server := range servers {
			_ = server.Close()
		}
	}
}

// Only a process with all roles can have an embedded store.
func TestRolesThatCannotBe(t *testing.T) {
	inside, outside := Settings{DataDir: "/d"}, Settings{Etcd: &Etcd{}}
	for _, tt := range []struct {
		role Role
		in   Settings
		want string
	}{
		{All, inside, "<nil>"}, {All, outside, "<nil>"},
		{Front, outside, "<nil>"}, {Controller, outside, "<nil>"},
		{Front, inside, "share an external etcd"}, {Controller, inside, "share an external etcd"},
		{"back", outside, "front, controller or all"}, {"", outside, "front, controller or all"},
	} {
		has(t, fmt.Sprintf("the role %q", tt.role), fmt.Sprint(tt.role.Check(tt.in)), tt.want)
	}
}
