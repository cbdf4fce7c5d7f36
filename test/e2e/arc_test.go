package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/lab"
)

// A machine whose owner has connected and authorised it joins from its flexNodeConfig: nobody logs
// in, no service principal is configured, and the Arc agent and all in Azure that was there before
// remains.
func arcByItself(t *testing.T) {
	const name = "self-1"
	m := bareMachine(t, name)
	principal := connectedToArc(t, m, name)
	for i, role := range []string{"system:node-bootstrapper",
		"system:certificates.k8s.io:certificatesigningrequests:nodeclient"} {
		binding := name + "-" + string(rune('a'+i))
		if _, err := bench.Kubectl(t.Context(), "", "create", "clusterrolebinding", binding,
			"--clusterrole="+role, "--user="+principal); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_, _ = bench.Kubectl(context.Background(), "", "delete", "clusterrolebinding", binding)
		})
	}
	answer := rp(t, 201, http.MethodPut, rpNode(name)+"?configUrl=true", desired{
		"properties": desired{"versions": lab.Newest.Desired(),
			"azureAuth": desired{"method": "arc"}, "kubernetesAuth": desired{"useAzureAuth": true}}})
	url, _ := properties(answer)["configUrl"].(string)
	status, bundle := get(t, url)
	if status != 200 || strings.Contains(bundle, "servicePrincipal") {
		t.Fatalf("the configuration URL %q: %d %s", url, status, bundle)
	}
	if err := bench.PrepareText(m, agent, []byte(bundle)); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t.Context(), t, m)
	assignments := azure(t, http.MethodGet, "/assignments", nil)
	machines := azure(t, http.MethodGet, "/machines", nil)
	if out, code := inside(t, m, "sh", "-c", "aks-flex-node bootstrap < /dev/null"); code != 0 {
		t.Fatalf("bootstrap: %s", out)
	}
	if _, err := bench.CheckPod(t.Context(), "pod-self", name); err != nil {
		t.Error(err)
	}
	must(t, m, "unbootstrap")
	same(t, before, snapshot(t.Context(), t, m))
	if now := azure(t, http.MethodGet, "/assignments", nil); now != assignments {
		t.Errorf("role assignments before and after:\n%s\n%s", assignments, now)
	}
	if now := azure(t, http.MethodGet, "/machines", nil); now != machines {
		t.Errorf("Arc machines before and after: %s, %s", machines, now)
	}
	if out, code := inside(t, m, "azcmagent", "show", "--json"); code != 0 ||
		!strings.Contains(out, name) {
		t.Errorf("the Arc agent: %s", out)
	}
	rp(t, 200, http.MethodDelete, rpNode(name), nil, 202, 204)
}

// connectedToArc makes a machine an Arc machine, as its owner does, and returns its identity's
// object id.
func connectedToArc(t *testing.T, m lab.Machine, name string) string {
	t.Helper()
	if err := bench.AddArc(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	who, err := bench.Azure()
	if err != nil {
		t.Fatal(err)
	}
	token, err := bench.AccessToken(t.Context(), who.Operator)
	if err != nil {
		t.Fatal(err)
	}
	settings, err := json.Marshal(map[string]string{"access-token": token,
		"subscription-id": lab.Subscription, "resource-group": "flexlab", "tenant-id": lab.Tenant,
		"location": "lab", "resource-name": name})
	if err == nil {
		err = bench.Write(m, "/root/connect.json", 0o600, settings)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, code := inside(t, m, "azcmagent", "connect", "--config", "/root/connect.json"); code != 0 {
		t.Fatalf("azcmagent connect: %s", out)
	}
	if err := os.Remove(filepath.Join(m.Root, "root/connect.json")); err != nil {
		t.Fatal(err)
	}
	id := "/subscriptions/" + lab.Subscription +
		"/resourceGroups/flexlab/providers/Microsoft.HybridCompute/machines/" + name
	_, text, err := bench.ARM(t.Context(), http.MethodGet, lab.AzureURL, id, "2024-07-10", nil)
	var machine struct {
		Identity struct {
			PrincipalID string `json:"principalId"`
		} `json:"identity"`
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &machine)
	}
	if err != nil || machine.Identity.PrincipalID == "" {
		t.Fatalf("the machine's identity: %v: %s", err, text)
	}
	t.Cleanup(func() {
		_, _, _ = bench.ARM(context.Background(), http.MethodDelete, lab.AzureURL, id, "2024-07-10", nil)
		azure(t, http.MethodDelete, "/assignments?principal="+machine.Identity.PrincipalID, nil)
	})
	azure(t, http.MethodPut, "/assignments", azuresim.Assignment{Scope: lab.ClusterID,
		RoleID: "4abbcc35-e782-43d8-92c5-2d3f1bd2253f", PrincipalID: machine.Identity.PrincipalID})
	return machine.Identity.PrincipalID
}
