package prepare

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/Azure/AKSFlexNode/internal/prepare/preparetest"
)

var all = Options{Provider: ProviderUser, Identities: "group-1", Leave: true, KubeProxy: "auto"}

func newServer(t *testing.T) (*preparetest.Server, *Cluster) {
	t.Helper()
	s := preparetest.New(t)
	c, err := Open(s.Kubeconfig, "")
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

// AKS's long-term support numbers patches from 100, of which there are no images upstream.
func TestProxyVersion(t *testing.T) {
	for server, want := range map[string]string{"1.36.3": "1.36.3", "1.33.100": "1.33.8"} {
		if got := (facts{version: version.MustParseGeneric(server)}).proxyVersion(); got != want {
			t.Errorf("kube-proxy %s for an API server %s, want %s", got, server, want)
		}
	}
}

// planned plans and applies, and returns how many objects each action has.
func planned(t *testing.T, c *Cluster, o Options) (Report, map[string]int) {
	t.Helper()
	r, err := c.Plan(t.Context(), o, false)
	if err != nil {
		t.Fatal(err)
	}
	return r, applied(t, c, r)
}

func applied(t *testing.T, c *Cluster, r Report) map[string]int {
	t.Helper()
	actions := map[string]int{}
	for _, change := range r.Changes {
		actions[change.Action]++
	}
	if err := c.Apply(t.Context(), &r, false); err != nil {
		t.Fatal(err)
	}
	return actions
}

const (
	renewal  = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/aks-flex-node:approve-renewal"
	policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/"
	proxy    = "/apis/apps/v1/namespaces/kube-system/daemonsets/aks-flex-node-kube-proxy"
	shutOut  = "/api/v1/namespaces/kube-system/configmaps/flexnode-revoked"
)

// A cluster gets all of it, the second time nothing, and loses what was added: what was there
// before remains, as does the list of the machines that are shut out.
func TestPrepareAndBack(t *testing.T) {
	s, c := newServer(t)
	s.Put(renewal, `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
		"metadata": {"name": "aks-flex-node:approve-renewal", "uid": "theirs"},
		"subjects": [{"kind": "User", "name": "another"}]}`)
	s.Put(policies+"flexnode-revoked", `{"apiVersion": "admissionregistration.k8s.io/v1",
		"kind": "ValidatingAdmissionPolicy", "metadata": {"name": "flexnode-revoked",
		"labels": {"app.kubernetes.io/managed-by": "Helm"}}}`)
	r, got := planned(t, c, all)
	if got[Create] < 18 || got[Update] != 1 || got[Left] != 1 || len(got) != 3 {
		t.Fatalf("the first time: %v", got)
	}
	for _, change := range r.Changes {
		if change.Action == Update && (change.Name != "aks-flex-node:approve-renewal" ||
			!slices.ContainsFunc(change.Fields, func(f Field) bool {
				return f.Path == "subjects[0].name" && f.Is == "another" && f.Want == "system:nodes"
			})) {
			t.Errorf("the update is %+v", change)
		}
	}
	text := fmt.Sprint(s.Objects[proxy])
	if !strings.Contains(text, "kube-proxy:v1.36.3") || strings.Contains(fmt.Sprint(s.Objects),
		"API-SERVER") {
		t.Errorf("the DaemonSet is %s", text)
	}
	writes := s.Writes
	if _, again := planned(t, c, all); again[Unchanged] != got[Create]+1 || again[Left] != 1 ||
		len(again) != 2 || s.Writes != writes {
		t.Errorf("the second time: %v, %d writes", again, s.Writes-writes)
	}
	s.Version = "v1.36.4"
	r, got = planned(t, c, all)
	if got[Update] != 1 {
		t.Errorf("after an upgrade of the cluster: %v", got)
	}
	removal, err := c.PlanRemoval(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	applied(t, c, removal)
	left := slices.Sorted(maps.Keys(s.Objects))
	if want := []string{shutOut, policies + "flexnode-revoked", renewal}; !slices.Equal(left, want) {
		t.Errorf("what is left is %v, want %v", left, want)
	}
	for i, change := range removal.Changes {
		if change.Kind == "ValidatingAdmissionPolicyBinding" && slices.ContainsFunc(removal.Changes[:i],
			func(c Change) bool { return c.Kind == "ValidatingAdmissionPolicy" }) {
			t.Error("a policy is deleted before its binding")
		}
	}
}

// A plan writes nothing; what flags no longer ask for is removed.
func TestPlanWritesNothing(t *testing.T) {
	s, c := newServer(t)
	if _, err := c.Plan(t.Context(), all, false); err != nil || s.Writes != 0 || len(s.Objects) > 0 {
		t.Errorf("%d writes, %v", s.Writes, err)
	}
	planned(t, c, all)
	less := all
	less.KubeProxy = "no"
	if _, got := planned(t, c, less); got[Delete] != 4 || s.Objects[proxy] != nil {
		t.Errorf("without kube-proxy: %v", got)
	}
}

// Fields that others have set to other values are shown, and taken over only when asked.
func TestConflict(t *testing.T) {
	s, c := newServer(t)
	planned(t, c, all)
	s.Taken[proxy] = ".spec.template"
	r, err := c.Plan(t.Context(), all, false)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(r.Changes, func(c Change) bool { return c.Action == Conflict })
	if at < 0 ||
		fmt.Sprint(r.Changes[at].Fields) != `[{spec.template conflict with "kubectl-edit" }]` {
		t.Fatalf("the changes are %+v", r.Changes)
	}
	writes := s.Writes
	if err := c.Apply(t.Context(), &r, false); err == nil || s.Writes != writes {
		t.Errorf("it is applied: %v", err)
	}
	if r, err = c.Plan(t.Context(), all, true); err != nil || r.Pending() != 0 {
		t.Errorf("by force: %v, %d changes", err, r.Pending())
	}
}

// An identity or the chart's service account as the provider is in the bindings and in the policy,
// and it alone approves the certificates of identities; old clusters get what they know.
func TestDesired(t *testing.T) {
	s, c := newServer(t)
	s.Version = "v1.31.2-aks"
	const approves = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/" +
		"aks-flex-node:identities-approve-first-certificate"
	for _, provider := range []string{
		"11111111-2222-3333-4444-555555555555", "system:serviceaccount:flexnode:flexnode-rp",
	} {
		planned(t, c, Options{Identities: "group-1", KubeProxy: "no"})
		if !strings.Contains(fmt.Sprint(s.Objects[approves]), "name:group-1") {
			t.Error("without a provider no one approves an identity's certificate")
		}
		o := all
		o.Provider = provider
		planned(t, c, o)
		if s.Objects[policies+"flexnode-revoked"] != nil || s.Objects[proxy] != nil {
			t.Error("1.31 has a policy or a kube-proxy that it does not know")
		}
		text := fmt.Sprint(s.Objects[policies+"flexnode-rp"])
		if !strings.Contains(text, `["`+provider+`", "system:serviceaccount:`) {
			t.Errorf("the policy is %s", text)
		}
		if text := fmt.Sprint(s.Objects); strings.Count(text, "kind:User name:"+provider) != 3 ||
			strings.Contains(text, "kind:User name:flexnode-rp") {
			t.Errorf("the bindings are %s", text)
		}
		if s.Objects[approves] != nil {
			t.Error("the cluster approves an identity's certificate, which is for the provider to decide")
		}
	}
	for want, o := range map[string]Options{
		"not the name of a user":     {Provider: `a"}`, KubeProxy: "no"},
		"not an object id":           {Identities: "a b", KubeProxy: "no"},
		"it is auto, yes or no":      {KubeProxy: "maybe"},
		"begin the name of an inter": {PodInterfaces: "a}", KubeProxy: "no"},
		"not an https URL":           {Server: "http://a", KubeProxy: "no"},
	} {
		if _, err := c.Plan(t.Context(), o, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
