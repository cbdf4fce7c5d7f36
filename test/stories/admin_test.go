package stories

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/agent"
	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/config"
)

// The kubeconfig of the cluster's administrator is on the machine where its owner asks for it: for
// root alone, in no plan and no log, and gone at the end. An identity that may not list it is
// refused before anything is touched.
func TestAdminKubeconfig(t *testing.T) {
	const admins, file = "canary-of-the-administrator", "/etc/kubernetes/admin.conf"
	w, sim := azureWorld(t)
	sim.AddCluster(azuresim.Cluster{ID: clusterID, Server: w.cluster.URL, CA: w.cluster.pki(),
		Entra: true, AzureRBAC: true, AdminKubeconfig: "# " + admins + "\n"})
	asks := func(c map[string]any) { c["node"].(map[string]any)["adminKubeconfig"] = true }
	w.config = w.configuration(w.azure(nil), asks)
	before := w.tree()
	if _, err := w.bootstrap(); err == nil || !strings.Contains(err.Error(), config.RoleClusterAdmin) {
		t.Errorf("the error is %v", err)
	}
	w.same(before)
	sim.Assign(azuresim.Assignment{
		Scope: clusterID, RoleID: config.Roles()[config.RoleClusterAdmin], PrincipalID: objectID,
	})
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(w.root, file))
	if err != nil || info.Mode() != 0o600 || w.read(file) != "# "+admins+"\n" {
		t.Errorf("%v, %v: %s", info, err, w.read(file))
	}
	if err := os.WriteFile(filepath.Join(w.root, file), []byte("gone"), 0o600); err != nil {
		t.Fatal(err)
	}
	sim.Revoke(objectID) // what is kept needs nobody's permission
	report, err := w.drift(true)
	if err != nil || len(report.Changes) != 1 || w.read(file) != "# "+admins+"\n" {
		t.Errorf("repaired %+v, %v", report, err)
	}
	err = w.run(func(ctx context.Context, a *agent.Agent) error {
		report, err = a.Plan(ctx, agent.Input{Config: w.config, Origin: "file"})
		return err
	})
	if err != nil || len(report.Changes) > 0 {
		t.Errorf("planned %+v, %v", report, err)
	}
	if strings.Contains(w.log.String(), admins) {
		t.Error("it is in the log")
	}
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	w.same(before)
}
