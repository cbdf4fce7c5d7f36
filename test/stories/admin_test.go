package stories

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// admins is a secret in the kubeconfig of the cluster's administrator.
const admins = "canary-of-the-administrator"

// administered gives the cluster a kubeconfig of its administrator.
func (w *world) administered(sim *azuresim.Sim) {
	sim.AddCluster(azuresim.Cluster{ID: clusterID, Server: w.cluster.URL, CA: w.cluster.pki(),
		Entra: true, AzureRBAC: true, AdminKubeconfig: "# " + admins + "\n"})
}

// administrator allows the stories' identity to list that kubeconfig, or forbids it.
func administrator(sim *azuresim.Sim, is bool) {
	sim.Revoke(objectID)
	roles := []string{config.RoleClusterUser, config.RoleRBACClusterAdmin}
	if is {
		roles = append(roles, config.RoleClusterAdmin)
	}
	for _, role := range roles {
		sim.Assign(azuresim.Assignment{
			Scope: clusterID, RoleID: config.Roles()[role], PrincipalID: objectID,
		})
	}
}

func asksForAdmin(c map[string]any) { c["node"].(map[string]any)["adminKubeconfig"] = true }

// The kubeconfig of the cluster's administrator is on the machine if its owner requests it: for
// root alone, in no plan and no log, and removed at the end. An identity that may not list it is
// refused before anything is changed.
func TestAdminKubeconfig(t *testing.T) {
	const file = "/etc/kubernetes/admin.conf"
	w, sim := azureWorld(t)
	w.administered(sim)
	w.config = w.configuration(w.azure(nil), asksForAdmin)
	before := w.tree()
	if _, err := w.bootstrap(); err == nil || !strings.Contains(err.Error(), config.RoleClusterAdmin) {
		t.Errorf("the error is %v", err)
	}
	w.same(before)
	administrator(sim, true)
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
	sim.Revoke(objectID) // what is kept needs no permission
	report, err := w.drift(true)
	if err != nil || len(report.Changes) != 1 || w.read(file) != "# "+admins+"\n" {
		t.Errorf("repaired %+v, %v", report, err)
	}
	err = w.run(func(ctx context.Context, a *change.Agent) error {
		report, err = change.Plan(ctx, a, change.Input{Config: w.config, Origin: "file"})
		return err
	})
	if err != nil || len(report.Changes) > 0 {
		t.Errorf("planned %+v, %v", report, err)
	}
	if strings.Contains(w.log.String(), admins) {
		t.Error("it is in the log")
	}
	w.write(file, w.read(file)+"# as kubectl rewrites it\n")
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	w.same(before)
}

// A rollback to a configuration with the administrator's kubeconfig uses the present one, else the
// one that Azure returns; if Azure returns none, nothing is changed.
func TestAdminKubeconfigAfterRollback(t *testing.T) {
	const file = "/etc/kubernetes/admin.conf"
	w, sim := azureWorld(t)
	w.administered(sim)
	administrator(sim, true)
	pods := func(c map[string]any) { c["node"].(map[string]any)["maxPods"] = 42 }
	for _, c := range []config.Config{
		w.configuration(w.azure(nil), asksForAdmin), w.configuration(w.azure(nil), asksForAdmin, pods),
	} {
		w.config = c
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
	}
	administrator(sim, false)
	told, err := change.Back(t.Context(), w.agent(), "")
	if err != nil || slices.ContainsFunc(told.Changes, func(e state.Line) bool {
		return strings.Contains(string(e.Key), file)
	}) {
		t.Errorf("it would do %+v, %v", told.Changes, err)
	}
	if err := w.back(""); err != nil {
		t.Fatal(err)
	}
	if w.read(file) != "# "+admins+"\n" || maxPods(w.root) != "110" {
		t.Errorf("kubelet takes %s pods, and %s is %q", maxPods(w.root), file, w.read(file))
	}
	w.config = w.configuration(w.azure(nil))
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	before := w.tree()
	if err := w.back(""); err == nil || !strings.Contains(err.Error(), config.RoleClusterAdmin) {
		t.Errorf("the error is %v", err)
	}
	w.same(before)
	administrator(sim, true)
	if err := w.back(""); err != nil {
		t.Fatal(err)
	}
	if w.read(file) != "# "+admins+"\n" {
		t.Errorf("%s is %q", file, w.read(file))
	}
}
