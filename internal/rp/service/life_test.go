package service

import (
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/rp/cluster"
	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/front"
	"github.com/Azure/AKSFlexNode/internal/rp/rptest/kubetest"
)

// read reads a bundle like the agent.
func read(bundle string) config.Config {
	return must(config.Parse([]byte(bundle), config.Host{HostName: "x", Arch: "amd64"})).Config
}

// token reads the bootstrap token out of a bundle.
func token(bundle string) string { return read(bundle).Azure.BootstrapToken.Token.Reveal() }

// ask files kubelet's request with a token, and waits for the answer: Approved, Denied or "".
func (w *world) ask(name, tokenID, node string, key *ecdsa.PrivateKey) string {
	groups, _ := w.cluster.Groups.Load(tokenID)
	return w.cluster.Ask(kubetest.CSR(name, tokenID, node, key,
		strings.Split(groups.(string), ",")...))
}

// urlOf returns the URL in the answer to a POST.
func (w *world) urlOf(action string) api.ConfigURL {
	w.t.Helper()
	_, text := w.must(200, "POST", nodeURL("edge-1", action), "{}")
	var u api.ConfigURL
	must(0, json.Unmarshal([]byte(text), &u))
	return u
}

// PUT, bundle, join: the token is consumed, the URL dies, the Secret is deleted, and no other
// machine gets in; another token allows another join, and DELETE ends everything.
func TestATokenIsForOneMachine(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		_, text := w.must(201, "PUT", nodeURL("Edge-1")+"&configUrl=true", withToken)
		n := shownNode(t, text)
		if n.Properties.ProvisioningState != api.Succeeded || n.Properties.ConfigURL == "" {
			t.Fatalf("%s", text)
		}
		if u := w.urlOf("/listConfigUrl"); u.ConfigURL != n.Properties.ConfigURL ||
			u.ConfigVersion != n.Properties.ConfigVersion {
			t.Errorf("listConfigUrl: %+v", u)
		}
		bundle := w.join(path(n.Properties.ConfigURL))

		fresh := w.urlOf("/regenerateToken")
		if fresh.ConfigURL == n.Properties.ConfigURL ||
			fresh.ConfigVersion != n.Properties.ConfigVersion {
			t.Errorf("regenerateToken: %+v", fresh)
		}
		_, bundle2 := w.must(200, "GET", path(fresh.ConfigURL), "")
		equal(t, "with the new token", w.ask("again", token(bundle2)[:6], "edge-1", kubetest.NewKey()),
			"Approved")
		w.must(200, "DELETE", nodeURL("edge-1"), "") // while a machine joins
		equal(t, "the Secrets of a deleted node", len(w.cluster.Secrets()), 0)
		w.must(403, "GET", path(fresh.ConfigURL), "")
		has(t, "the audit log", w.audit.String(), "credential issued", "bootstrap token consumed",
			"certificate request denied", "credential revoked")
		for _, b := range []string{bundle, bundle2} {
			if strings.Contains(w.audit.String(), token(b)) {
				t.Error("the token is in the audit log")
			}
		}
	})
}

// join joins a machine with the bundle of a URL, and checks that others cannot.
func (w *world) join(url string) (bundle string) {
	w.t.Helper()
	r, bundle := w.must(200, "GET", url, "")
	equal(w.t, "Cache-Control of a bundle", r.Header.Get("Cache-Control"), "no-store")
	w.must(200, "GET", url, "") // a machine that crashed before it joined asks again
	id := token(bundle)[:6]
	w.checkSecret(id, token(bundle))
	mine, another := kubetest.NewKey(), kubetest.NewKey()
	answers := func(want, name, node string, key *ecdsa.PrivateKey) {
		w.t.Helper()
		equal(w.t, "the request "+name, w.ask(name, id, node, key), want)
	}
	answers("Denied", "other-node", "edge-2", mine)
	c := list(w.t, w.store.Credentials)[0].Value
	if c.Delivered != 2 || !strings.Contains(c.Denied, "not for edge-2") {
		w.t.Errorf("%d deliveries were counted, the denial is noted as %q", c.Delivered, c.Denied)
	}
	w.must(200, "GET", url, "") // which did not consume it
	answers("Approved", "first", "edge-1", mine)
	w.must(403, "GET", url, "")
	answers("Approved", "retried", "edge-1", mine)
	answers("Denied", "thief", "edge-1", another)
	w.must(409, "POST", nodeURL("edge-1", "/listConfigUrl"), "{}")
	w.cluster.Issue("first", []byte("a certificate"))
	equal(w.t, "the Secrets within the grace period", len(w.cluster.Secrets()), 1)
	pass(credential.Grace)
	equal(w.t, "the Secrets after it", len(w.cluster.Secrets()), 0)
	equal(w.t, "rows that are left", len(list(w.t, w.store.Credentials)), 0)
	answers("Denied", "late", "edge-1", another)
	return bundle
}

func (w *world) checkSecret(id, token string) {
	w.t.Helper()
	secrets := w.cluster.Secrets()
	if len(secrets) != 1 || secrets[0].Name != "bootstrap-token-"+id ||
		secrets[0].Type != "bootstrap.kubernetes.io/token" ||
		!strings.HasPrefix(string(secrets[0].Data["auth-extra-groups"]),
			cluster.TokenGroup+","+cluster.TokenGroup+":") ||
		string(secrets[0].Data["expiration"]) !=
			list(w.t, w.store.Credentials)[0].Value.Expires.Format(time.RFC3339) ||
		token != id+"."+string(secrets[0].Data["token-secret"]) {
		w.t.Fatalf("secrets: %+v", secrets)
	}
}

// A PUT is accepted, and completed when the cluster is first reached; a DELETE does not wait for
// it.
func TestClusterIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDownWorld(t)
		_, text := w.must(201, "PUT", nodeURL("edge-1")+"&configUrl=true", withToken)
		p := shownNode(t, text).Properties
		if p.ProvisioningState != api.Creating || p.ConfigURL != "" || p.Config != nil {
			t.Errorf("with a cluster that was never reached: %s", text)
		}
		w.must(202, "POST", nodeURL("edge-1", "/listConfigUrl"), "")
		w.cluster.Down.Store(false)
		pass(time.Minute)
		_, text = w.must(200, "GET", nodeURL("edge-1"), "")
		if p := shownNode(t, text).Properties; p.ProvisioningState != api.Succeeded || p.Config == nil {
			t.Errorf("after the cluster is back: %s", text)
		}
		url := path(w.urlOf("/listConfigUrl").ConfigURL)
		_, bundle := w.must(200, "GET", url, "")
		equal(t, "the version of the bundle", read(bundle).Kubernetes.Version, "1.35.4")
		_, _, err := follow.Verify([]byte(bundle), config.JoiningOf([]byte(bundle)).Root)
		equal(t, "the signature of the bundle", err, nil)
		w.cluster.Down.Store(true)
		w.must(200, "DELETE", nodeURL("edge-1"), "")
		w.must(403, "GET", url, "")
		w.cluster.Down.Store(false)
		pass(time.Minute)
		equal(t, "a deleted node's tokens", len(w.cluster.Secrets()), 0)
	})
}

// Last-seen times are written only by flushes, and kept over a restart.
func TestLastSeen(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const client = "aaaaaaaa-0000-0000-0000-000000000001"
		operator := w.caller
		r, _ := w.must(201, "PUT", nodeURL("a"), `{"properties":{"continuousMonitoring":true,
			"azureAuth":{"method":"managedIdentity","managedIdentity":{"clientId":"`+client+`"}}}}`)
		pass(time.Minute)
		seen, same := time.Now().Truncate(time.Minute), "If-None-Match: "+r.Header.Get("ETag")
		w.caller = front.Caller{TenantID: tenant, AppID: client, ObjectID: "o", Type: "Application"}
		before := w.memory.Commits()
		w.must(304, "GET", nodeURL("a"), "", same)
		equal(t, "the commits after a poll", w.memory.Commits(), before)
		w.caller = operator
		time.Sleep(2 * time.Minute)
		w.must(304, "GET", nodeURL("a"), "", same) // another caller reads
		w.drain()
		w.start(w.memory.Another())
		_, text := w.must(200, "GET", nodeURL("a"), "")
		s := shownNode(t, text).Properties.Status
		if s == nil || !s.LastSeen.Truncate(time.Minute).Equal(seen) {
			t.Errorf("after a restart: %s", text)
		}
	})
}

// newDownWorld returns a world whose cluster was never reached.
func newDownWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, All)
	w.cluster.Down.Store(true)
	w.register()
	return w
}

// A node that was made before its cluster was reached polls this provider like every other.
func TestNodesOfAClusterThatWasDownPollHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDownWorld(t)
		w.must(201, "PUT", nodeURL("a"), withToken)
		w.cluster.Down.Store(false)
		pass(time.Minute)
		w.must(201, "PUT", nodeURL("b"), withToken)
		var agents []any
		for _, name := range []string{"a", "b"} {
			_, text := w.must(200, "GET", nodeURL(name), "")
			var config map[string]any
			must(0, json.Unmarshal(shownNode(t, text).Properties.Config, &config))
			agents = append(agents, config["agent"].(map[string]any)["monitoring"])
		}
		if diff := cmp.Diff(agents[1], agents[0]); diff != "" || !strings.Contains(fmt.Sprint(agents[0]),
			publicURL) {
			t.Errorf("%v: %s", agents, diff)
		}
	})
}

// The metrics have the number of credentials by state, without reads of the store.
func TestCredentialsAreCounted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		check := func(when, want string) {
			t.Helper()
			before, got := w.memory.Reads(), map[string]float64{}
			for _, family := range must(w.registry.Gather()) {
				for _, m := range family.Metric {
					if family.GetName() == "flexnode_rp_credentials" {
						got[m.Label[0].GetValue()] = m.Gauge.GetValue()
					}
				}
			}
			equal(t, when, fmt.Sprint(got), "map["+want+"]")
			equal(t, when+": reads", w.memory.Reads()-before, 0)
		}
		check("before", "Consumed:0 Live:0 Pending:0 Revoking:0")
		w.must(201, "PUT", nodeURL("a")+"&configUrl=true", withToken)
		w.must(201, "PUT", nodeURL("b")+"&configUrl=true", withToken)
		pass(time.Second)
		check("two are live", "Consumed:0 Live:2 Pending:0 Revoking:0")
		w.cluster.Down.Store(true)
		pass(time.Minute)
		w.must(201, "PUT", nodeURL("c")+"&configUrl=true", withToken)
		w.must(200, "DELETE", nodeURL("a"), "")
		pass(time.Second)
		check("the cluster is down", "Consumed:0 Live:1 Pending:1 Revoking:1")
		w.cluster.Down.Store(false)
		pass(time.Minute)
		check("it is back", "Consumed:0 Live:2 Pending:0 Revoking:0")
	})
}
