package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/lab"
)

// connectedToArc connects a machine to Arc, as its owner would, and returns its identity's object
// id.
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
	principal := arcPrincipal(t, name)
	if principal == "" {
		t.Fatalf("%s has no identity in Azure", name)
	}
	t.Cleanup(func() {
		_, _, _ = bench.ARM(context.Background(), http.MethodDelete, lab.AzureURL, arcID(name),
			"2024-07-10", nil)
		azure(t, http.MethodDelete, "/assignments?principal="+principal, nil)
	})
	azure(t, http.MethodPut, "/assignments", azuresim.Assignment{Scope: lab.ClusterID,
		RoleID: clusterUser, PrincipalID: principal})
	return principal
}

// arcID returns the resource id of an Arc machine.
func arcID(name string) string {
	return "/subscriptions/" + lab.Subscription +
		"/resourceGroups/flexlab/providers/Microsoft.HybridCompute/machines/" + name
}

// arcPrincipal returns the object id of an Arc machine's identity, or "" if the machine does not
// exist.
func arcPrincipal(t *testing.T, name string) string {
	t.Helper()
	status, text, err := bench.ARM(t.Context(), http.MethodGet, lab.AzureURL, arcID(name),
		"2024-07-10", nil)
	if err == nil && status == http.StatusNotFound {
		return ""
	}
	var machine struct {
		Identity struct {
			PrincipalID string `json:"principalId"`
		} `json:"identity"`
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &machine)
	}
	if err != nil || status != http.StatusOK {
		t.Fatalf("the Arc machine %s: %v: %d %s", name, err, status, text)
	}
	return machine.Identity.PrincipalID
}

// arcLeft fails if the resource of a machine that has left Azure, or role assignments of its
// principal, still exist.
func arcLeft(t *testing.T, name, principal string) {
	t.Helper()
	if id := arcPrincipal(t, name); id != "" {
		t.Errorf("the Arc machine %s is left", name)
	}
	for _, a := range assignments(t) {
		if a.PrincipalID == principal {
			t.Errorf("the role assignment %+v is left", a)
		}
	}
}
