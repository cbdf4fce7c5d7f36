package stories

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// A change of Kubernetes' minor version first evicts the pods from a cordoned Node, and then
// removes its own cordon. No other change does.
func TestDrainsForMinorVersion(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, version string
		cordoned      bool // by another caller
		drains        bool
	}{
		{name: "minor", version: "1.35.1", drains: true},
		{name: "minor of a cordoned Node", version: "1.35.1", cordoned: true, drains: true},
		{name: "back by a minor", version: "1.33.8", drains: true},
		{name: "patch", version: "1.34.3"},
		{name: "a setting", version: "1.34.4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			w.cluster.run("web", "worker")
			w.cluster.set(func() { w.cluster.nodes["edge-1"].Spec.Unschedulable = tt.cordoned })
			w.config = w.configuration(w.kubernetes(tt.version, tt.version), nodeSetting("maxPods", 42))
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			var want []string
			if tt.drains {
				want = []string{"web from v1.34.4, cordoned: true", "worker from v1.34.4, cordoned: true"}
			}
			if diff := cmp.Diff(want, w.cluster.evicted); diff != "" {
				t.Errorf("evicted (-want +got):\n%s", diff)
			}
			n := w.cluster.node1()
			if n.Spec.Unschedulable != tt.cordoned || n.Status.NodeInfo.KubeletVersion != "v"+tt.version {
				t.Errorf("the Node is cordoned: %v, its kubelet %s",
					n.Spec.Unschedulable, n.Status.NodeInfo.KubeletVersion)
			}
			w.steady("afterwards")
		})
	}
}

// A change that fails after its drain is rolled back, and the Node accepts pods again.
func TestRollbackUncordons(t *testing.T) {
	t.Parallel()
	for _, cordoned := range []bool{false, true} {
		w := newWorld(t)
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
		w.cluster.run("web")
		w.cluster.set(func() { w.cluster.nodes["edge-1"].Spec.Unschedulable = cordoned })
		w.refuseChangedKubelet()
		w.config = w.configuration(w.kubernetes("1.35.1", "1.35.1"), nodeSetting("maxPods", 42))
		if _, err := w.bootstrap(); !rolledBack(err) {
			t.Fatalf("the error is %v; want that the change was rolled back", err)
		}
		n := w.cluster.node1()
		if n.Spec.Unschedulable != cordoned || n.Status.NodeInfo.KubeletVersion != "v1.34.4" {
			t.Errorf("the Node is cordoned: %v, its kubelet %s",
				n.Spec.Unschedulable, n.Status.NodeInfo.KubeletVersion)
		}
	}
}

// Downloads of changes that could not begin do not accumulate: the machine keeps those of the
// applied and of the next configuration.
func TestBlockedChangesAreCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
		stored := func() int { return len(w.entries("/opt/aks-flex-node/store")) }
		before := stored()
		w.cluster.run("db")
		w.cluster.set(func() { w.cluster.guarded = []string{"db"} })
		for _, version := range []string{"1.35.1", "1.35.2", "1.35.3"} {
			w.config = w.configuration(w.kubernetes(version, version))
			if _, err := w.bootstrap(); err == nil {
				t.Fatal("the drain is not blocked")
			}
		}
		// kubelet, kubectl and kubeadm of the version that is tried next
		if is := stored(); is != before+3 {
			t.Errorf("%d artifacts are stored, want %d", is, before+3)
		}
		if list := w.entries(saved.StateDir + "/generations"); len(list) != 2 {
			t.Errorf("generations: %v", list)
		}
	})
}

// entries returns the names in a directory of the machine.
func (w *world) entries(dir string) []string {
	w.t.Helper()
	list, err := os.ReadDir(w.root + dir)
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// A drain that a disruption budget does not let finish leaves the node on its version, and
// uncordons it. The configuration is not rejected, and is tried again.
func TestDrainThatCannotFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		bootstrap := func() error {
			_, err := change.Bootstrap(t.Context(), w.agent(), change.Input{Config: w.config,
				Origin: "file"})
			return err
		}
		if err := bootstrap(); err != nil {
			t.Fatal(err)
		}
		applied, since := w.pointer("applied"), w.kubeletSince()
		w.cluster.run("web", "db")
		w.cluster.set(func() { w.cluster.guarded = []string{"db"} })
		healthy := w.config
		w.config = w.configuration(w.kubernetes("1.35.1", "1.35.1"))
		began := time.Now()
		err := bootstrap()
		if err == nil || !strings.Contains(err.Error(), "disruption budget few needs 1") ||
			strings.Contains(err.Error(), "default/web") {
			t.Errorf("the error is %v; want the pod that is in the way, and why", err)
		}
		if took := time.Since(began); took > 20*time.Minute {
			t.Errorf("it took %s", took)
		}
		for _, pointer := range []string{"applied", "live"} {
			if is := w.pointer(pointer); is != applied {
				t.Errorf("%s is another generation", pointer)
			}
		}
		n := w.cluster.node1()
		if n.Spec.Unschedulable || w.kubeletVersion() != "v1.34.4" || w.kubeletSince() != since {
			t.Errorf("the Node is cordoned: %v, its kubelet %s, restarted: %v",
				n.Spec.Unschedulable, w.kubeletVersion(), w.kubeletSince() != since)
		}
		if list := w.rejected(); len(list) > 0 {
			t.Errorf("rejected: %+v", list)
		}
		changed := w.config
		w.config = healthy
		report, err := inspect.Drift(t.Context(), &w.agent().Env)
		if err != nil || len(report.Changes) > 0 {
			t.Errorf("drift: %v %+v", err, report.Changes)
		}
		w.config = changed
		w.cluster.set(func() { w.cluster.guarded = nil })
		if err := bootstrap(); err != nil {
			t.Errorf("with the budget satisfied: %v", err)
		}
		if is := w.cluster.node1().Status.NodeInfo.KubeletVersion; is != "v1.35.1" {
			t.Errorf("kubelet is %s", is)
		}
	})
}

// A pod that nothing would recreate blocks a change before any other pod is evicted, and is named;
// so does one with data if the configuration says so. drainOptions deletes them.
func TestDrainOptions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, says string
		options    map[string]any
	}{
		{"without a controller", "default/alone has no controller", nil},
		{"without a controller and by force", "", map[string]any{"force": true}},
		{"with data that is to be kept", "default/data has data in an emptyDir volume",
			map[string]any{"force": true, "deleteEmptyDir": false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			w.cluster.run("plain", "alone", "data")
			w.cluster.set(func() {
				pods := w.cluster.behaviour.pods
				pods[1].OwnerReferences = nil
				pods[2].Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
					EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			})
			w.config = w.configuration(w.kubernetes("1.35.1", "1.35.1"), func(c map[string]any) {
				c["agent"].(map[string]any)["upgradePolicy"] = map[string]any{"drainOptions": tt.options}
			})
			_, err := w.bootstrap()
			if tt.says == "" {
				if err != nil || len(w.cluster.evicted) != 3 {
					t.Errorf("the error is %v, evicted are %v", err, w.cluster.evicted)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.says) || len(w.cluster.evicted) > 0 {
				t.Errorf("the error is %v, evicted are %v; want %q", err, w.cluster.evicted, tt.says)
			}
			if w.cluster.node1().Spec.Unschedulable {
				t.Error("the Node is still cordoned")
			}
		})
	}
}

// Unbootstrap evicts every pod, except, on request, those that nothing replaces or that have data
// on this machine: it names these, and gives the machine back nevertheless.
func TestLeaveKeepsPods(t *testing.T) {
	data := []corev1.Volume{{Name: "data",
		VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	for _, tt := range []struct {
		name    string
		options transition.Options
		gone    []string
		says    string
	}{
		{"all go", transition.Options{}, []string{"alone", "data", "plain"}, ""},
		{"those that nothing replaces are kept", transition.Options{KeepUnmanaged: true},
			[]string{"data", "plain"}, "default/alone has no controller"},
		{"those with data are kept", transition.Options{KeepEmptyDir: true},
			[]string{"alone", "plain"}, "default/data has data in an emptyDir volume"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			w.cluster.run("alone", "data", "plain")
			w.cluster.set(func() {
				w.cluster.behaviour.pods[0].OwnerReferences = nil
				w.cluster.behaviour.pods[1].Spec.Volumes = data
			})
			tt.options.DrainTimeout = time.Minute
			err := w.service(func(ctx context.Context, a *change.Agent) error {
				_, err := change.Unbootstrap(ctx, a, nil, change.Leave{Options: tt.options})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			var gone []string
			for _, text := range w.cluster.evicted {
				name, _, _ := strings.Cut(text, " ")
				gone = append(gone, name)
			}
			if diff := cmp.Diff(tt.gone, gone); diff != "" {
				t.Errorf("evicted (-want +got):\n%s", diff)
			}
			if log := w.log.String(); tt.says != "" && !strings.Contains(log, tt.says) ||
				tt.says == "" && strings.Contains(log, "cannot drain the node") {
				t.Errorf("the log should say %q:\n%s", tt.says, log)
			}
		})
	}
}
