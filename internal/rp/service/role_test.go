package service

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// A front answers without any controller, and owns nothing; what needs one waits for it.
func TestAFrontWithoutControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		front := newWorldOf(t, Front)
		front.must(201, "PUT", clusterID+versionQuery, `{"location":"westeurope","properties":{}}`)
		r, text := front.must(201, "PUT", nodeURL("edge-1")+"&configUrl=true", withToken)
		if n := shownNode(t, text); n.Properties.ProvisioningState != api.Creating ||
			n.Properties.ConfigURL != "" || r.Header.Get("Azure-AsyncOperation") == "" {
			t.Errorf("nobody has reached the cluster: %s", text)
		}
		etag := r.Header.Get("ETag")
		front.must(304, "GET", nodeURL("edge-1"), "", "If-None-Match: "+etag)
		pass(10 * time.Minute)
		front.must(304, "GET", nodeURL("edge-1"), "", "If-None-Match: "+etag)
		front.must(200, "GET", "/readyz", "")
		front.must(200, "GET", "/readyz/write", "")
		if got := front.membership.Owned(); len(got) != 0 {
			t.Errorf("the front owns %v", got)
		}
		if got := front.cluster.Secrets(); len(got) != 0 {
			t.Errorf("the front has made %d Secrets", len(got))
		}

		controller := front.another(Controller)
		pass(10 * time.Second)
		_, text = front.must(200, "GET", nodeURL("edge-1"), "")
		if n := shownNode(t, text); n.Properties.ProvisioningState != api.Succeeded {
			t.Errorf("with a controller: %s", text)
		}
		if got := controller.membership.Owned(); len(got) != 1 {
			t.Errorf("the controller owns %v", got)
		}
	})
}

// A request to a front waits for what a controller does; fronts that come, and controllers that go,
// leave every cluster with a controller.
func TestFrontsAndControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		front := newWorldOf(t, Front)
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
		if got := other.membership.Owned(); len(got) != 0 {
			t.Errorf("a front owns %v", got)
		}
		if one, two := first.membership.Owned(), second.membership.Owned(); len(one)+len(two) != 1 {
			t.Errorf("the controllers own %v and %v", one, two)
		}
		first.kill()
		pass(2 * store.MemberTTL)
		if got := second.membership.Owned(); len(got) != 1 {
			t.Errorf("the controller that is left owns %v", got)
		}
		_, text = other.must(201, "PUT", nodeURL("edge-2")+"&configUrl=true", withToken)
		if n := shownNode(t, text); n.Properties.ConfigURL == "" {
			t.Errorf("with the second controller: %s", text)
		}
	})
}

// A controller listens only for requests for its health.
func TestListenersOfRoles(t *testing.T) {
	for role, want := range map[Role]bool{All: true, Front: true, Controller: false} {
		settings := settingsIn(t, t.TempDir())
		s := newService(settings, role, storetest.NewMemory())
		must(0, s.assemble(t.Context(), "test"))
		servers := must(s.open(t.Context()))
		for address, wanted := range map[string]bool{
			settings.Listen.Address: want, settings.MetricsAddress: true,
			settings.DebugAddress: true,
		} {
			c, err := net.Dial("tcp", address)
			if (err == nil) != wanted {
				t.Errorf("%s: %s: %v", role, address, err)
			}
			if err == nil {
				_ = c.Close()
			}
		}
		response := must(http.Get("http://" + settings.MetricsAddress + "/livez"))
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s: livez: %s", role, response.Status)
		}
		for _, server := range servers {
			_ = server.Close()
		}
	}
}

// An embedded store is for one process that does everything.
func TestRolesThatCannotBe(t *testing.T) {
	inside, outside := Settings{DataDir: "/d"}, Settings{Etcd: &Etcd{}}
	for _, tt := range []struct {
		role Role
		in   Settings
		want string
	}{
		{All, inside, ""}, {All, outside, ""}, {Front, outside, ""}, {Controller, outside, ""},
		{Front, inside, "share an etcd"}, {Controller, inside, "share an etcd"},
		{"back", outside, "front, controller or all"}, {"", outside, "front, controller or all"},
	} {
		err := tt.role.Check(tt.in)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %q", tt.role, err, tt.want)
		}
	}
}
