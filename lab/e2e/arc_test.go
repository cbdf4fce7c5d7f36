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
		RoleID: clusterUser, PrincipalID: machine.Identity.PrincipalID})
	return machine.Identity.PrincipalID
}
