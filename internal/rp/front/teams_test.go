package front

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// team is a team with a subscription of its own, in which it may do everything.
type team struct {
	subscription, kubeconfig, who, client string
}

func (t team) cluster() string { return strings.Replace(cluster, subscription, t.subscription, 1) }

func (t team) node(more ...string) string {
	return t.cluster() + "/flexNodeConfig/n" + strings.Join(more, "") + versionQuery
}

// bindings maps the id of each cluster to the kubeconfig that may be named for it.
type bindings map[string]string // of cluster id in lower case

func (b bindings) Check(clusterID, kubeconfig string) error {
	if b[strings.ToLower(clusterID)] != kubeconfig {
		return errNotBound{}
	}
	return nil
}

func (b bindings) Endpoint(_, kubeconfig string) string { return kubeconfig }

type errNotBound struct{}

func (errNotBound) Error() string { return "not bound" }

// Two teams with a subscription each share a provider: whatever one tries on what is the other's is
// refused, and written down.
func TestTwoTeams(t *testing.T) {
	w, i, _ := guarded(t)
	a := team{"aaaaaaaa-2222-3333-4444-555555555555", "kube-a", "lead-of-a", clientA}
	b := team{"bbbbbbbb-2222-3333-4444-555555555555", "kube-b", "lead-of-b", clientB}
	bound := bindings{}
	roles := Assignments{}
	for _, x := range []team{a, b} {
		bound[strings.ToLower(x.cluster())] = x.kubeconfig
		roles = append(roles, Assignment{x.who, "/subscriptions/" + x.subscription, []string{"*"}})
	}
	w.api.Kubeconfigs, w.api.Authorizer = bound, roles
	for _, x := range []team{a, b} {
		w.arrive(t, i, x)
	}
	w.caughtUp()
	for _, x := range [][2]team{{a, b}, {b, a}} {
		w.trespass(t, i, x[0], x[1])
	}
	for _, x := range []team{a, b} {
		who := i.as(t, w, x.who)
		_, text := w.must(200, "GET", x.node(), "", who)
		if shownNode(t, text).Properties.ProvisioningState != "Succeeded" {
			t.Errorf("what is left of the node of %s: %s", x.who, text)
		}
		w.must(200, "POST", x.node("/listConfigUrl"), "{}", who)
	}
}

// arrive has a team register its cluster, and make a node.
func (w *world) arrive(t *testing.T, i *issuer, x team) {
	t.Helper()
	who := i.as(t, w, x.who)
	w.must(200, "POST", "/subscriptions/"+x.subscription+
		"/providers/Microsoft.ContainerService/register?api-version=2021-04-01", "", who)
	w.must(201, "PUT", x.cluster()+versionQuery,
		`{"location":"westeurope","properties":{"kubeconfig":"`+x.kubeconfig+`"}}`, who)
	w.must(201, "PUT", x.node()+"&configUrl=true", nodeOf(x.client, "secret-of-"+x.who), who)
}

// trespass has a team, and the node of one, try everything on what is another's.
func (w *world) trespass(t *testing.T, i *issuer, x, other team) {
	t.Helper()
	clusterURL := other.cluster() + versionQuery
	operation := strings.Replace(operationURL("00000000-0000-0000-0000-000000000001"),
		subscription, other.subscription, 1)
	body := nodeOf(x.client, "mine")
	attempts := []struct {
		method, url, body string
		status            int
	}{
		{"GET", other.node(), "", 403},
		{"PUT", other.node(), body, 403},
		{"PUT", other.node() + "&configUrl=true", body, 403},
		{"DELETE", other.node(), "", 403},
		{"POST", other.node("/regenerateToken"), "{}", 403},
		{"POST", other.node("/listConfigUrl"), "{}", 403},
		{"POST", other.node("/refreshCredentials"), "{}", 403},
		{"POST", other.node("/reportStatus"), "{}", 403},
		{"GET", other.cluster() + "/flexNodeConfig" + versionQuery, "", 403},
		{"GET", clusterURL, "", 403},
		{"PUT", clusterURL, `{"location":"x","properties":{"kubeconfig":"` + x.kubeconfig + `"}}`,
			403},
		{"DELETE", clusterURL + "&nodes=wipe", "", 403},
		{"DELETE", clusterURL + "&nodes=wipe&dryRun=true", "", 403},
		{"GET", "/subscriptions/" + other.subscription + "/providers/" +
			flexnode.ClusterType + versionQuery, "", 403},
		{"POST", "/subscriptions/" + other.subscription +
			"/providers/Microsoft.ContainerService/register?api-version=2021-04-01", "", 403},
		{"PUT", "/subscriptions/" + other.subscription + versionQuery, `{"state":"Deleted"}`, 404},
		{"GET", operation, "", 404},
		// Its own cluster, by the other's kubeconfig, under its own and under another name.
		{"PUT", x.cluster() + versionQuery,
			`{"location":"x","properties":{"kubeconfig":"` + other.kubeconfig + `"}}`, 403},
		{"PUT", strings.Replace(x.cluster(), "Factory", "Second", 1) + versionQuery,
			`{"location":"x","properties":{"kubeconfig":"` + other.kubeconfig + `"}}`, 403},
	}
	for _, caller := range []string{x.who, "object-of-" + x.client} {
		for _, a := range attempts {
			before := w.audited(t, caller)
			r := w.do(a.method, a.url, a.body, i.callerWith(t, w, caller, x.client))
			if text := readAll(t, r.Body); r.StatusCode != a.status {
				t.Errorf("%s: %s %s: status %d, want %d: %s",
					caller, a.method, a.url, r.StatusCode, a.status, text)
			}
			if a.status == 403 && w.audited(t, caller) != before+1 {
				t.Errorf("%s: %s %s is not in the audit log", caller, a.method, a.url)
			}
		}
	}
}

// callerWith is the header of a caller with an object id and an application.
func (i *issuer) callerWith(t *testing.T, w *world, oid, client string) string {
	c := i.claims(w.clock.Now(), client)
	c["oid"] = oid
	return "Authorization: Bearer " + i.sign(t, "one", c)
}

// audited returns how many requests of a caller were refused, by the audit log.
func (w *world) audited(t *testing.T, oid string) int {
	t.Helper()
	n := 0
	for line := range strings.Lines(w.audit.String()) {
		var entry struct {
			Object string
			Status int
		}
		must(0, json.Unmarshal([]byte(line), &entry))
		if entry.Object == oid && entry.Status == 403 {
			n++
		}
	}
	return n
}
