package stories

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/agent"
	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// A change of the configuration of a migrated node is like any other; so is one with which the node
// is migrated.
func TestChangeOfAMigratedNode(t *testing.T) {
	for _, name := range []string{"token", "certificate", "principal", "cilium"} {
		for _, migrated := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/%v", name, migrated), func(t *testing.T) {
				w := formerWorld(t, name)
				if migrated {
					if _, err := w.bootstrap(); err != nil {
						t.Fatal(err)
					}
				}
				kubelet := w.pid("kubelet.service")
				w.config = w.changed()
				if _, err := w.bootstrap(); err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(w.read("/var/lib/kubelet/config.yaml"), `"maxPods": 42`) ||
					w.pid("kubelet.service") == kubelet {
					t.Error("kubelet has not got its new configuration")
				}
				labels := w.cluster.nodes["edge-1"].Labels
				if _, old := labels["example.com/site"]; old || labels["example.com/floor"] != "2" {
					t.Errorf("labels are %v", labels)
				}
				w.finished(t)
			})
		}
	}
}

// A change that fails is rolled back to the bytes that the former release had made.
func TestRollbackToAMigratedNode(t *testing.T) {
	for _, name := range []string{"token", "certificate", "rotated"} {
		t.Run(name, func(t *testing.T) {
			w := formerWorld(t, name)
			made, running := w.node(), w.systemd.Running("kubelet.service")
			w.refuse(`"maxPods": 77`)
			w.config = w.changed(func(c map[string]any) { c["node"].(map[string]any)["maxPods"] = 77 })
			if _, err := w.bootstrap(); !isRollback(err) {
				t.Fatalf("the change ended with %v", err)
			}
			if diff := cmp.Diff(made, w.node()); diff != "" {
				t.Errorf("the node is another one (-before +after):\n%s", diff)
			}
			if w.systemd.Running("kubelet.service") != running {
				t.Error("kubelet does not run with the unit of before")
			}
			if site := w.cluster.nodes["edge-1"].Labels["example.com/site"]; site != "north" {
				t.Errorf("the label is %q", site)
			}
			w.finished(t)
		})
	}
}

// What has drifted under the former release has drifted under this one, and is repaired to the
// bytes that were made, where this release still knows them.
func TestMigrationOfDrift(t *testing.T) {
	w := formerWorld(t, "token")
	made := w.node()
	w.write("/etc/containerd/config.toml", "of somebody else")
	w.write("/proc/sys/kernel/panic", "0\n")
	for _, path := range []string{"/etc/modules-load.d/aks-flex-node.conf", "/usr/local/bin/kubelet"} {
		if err := os.Remove(w.root + path); err != nil {
			t.Fatal(err)
		}
	}
	w.drifted(t, "path:/etc/containerd/config.toml", "path:/etc/modules-load.d/aks-flex-node.conf",
		"path:/usr/local/bin/kubelet", "sysctl:kernel.panic")
	if err := w.daemonReconciles(); err != nil {
		t.Fatal(err)
	}
	w.drifted(t, "path:/etc/containerd/config.toml", "path:/etc/modules-load.d/aks-flex-node.conf",
		"path:/usr/local/bin/kubelet", "sysctl:kernel.panic")
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(made, w.node()); diff != "" {
		t.Errorf("the node is another one (-before +after):\n%s", diff)
	}
	w.finished(t)

	w = formerWorld(t, "token") // these bytes nobody knows any more
	w.write("/etc/systemd/system/kubelet.service", "[Service]\nExecStart=/bin/true\n")
	w.drifted(t, "path:/etc/kubernetes/aks-flex-node-registration.env",
		"path:/etc/kubernetes/kubelet.yaml", "path:/etc/needrestart", "path:/etc/needrestart/conf.d",
		"path:/etc/needrestart/conf.d/aks-flex-node.conf", "path:/etc/sysctl.d/99-aks-flex-node.conf",
		"path:/etc/sysctl.d/999-aks-flex-node.conf", "path:/etc/systemd/system/containerd.service",
		"path:/etc/systemd/system/kubelet.service", "path:/var/lib/kubelet/config.yaml",
		"residue:table:kube-proxy")
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.finished(t)
}

// drifted fails unless exactly these things have drifted, restarts of units aside.
func (w *world) drifted(t *testing.T, want ...string) {
	t.Helper()
	report, err := w.agent().Drift(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, c := range report.Changes {
		if !strings.HasPrefix(string(c.Key), "unit:") {
			got[string(c.Key)] = true
		}
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("drift (-want +got):\n%s", diff)
	}
}

// What a migrated node has of its cluster can change: the address and the CA are in no byte of it.
func TestMigratedNodeFollowsItsCluster(t *testing.T) {
	for _, name := range []string{"token", "certificate", "principal"} {
		t.Run(name, func(t *testing.T) {
			w := formerWorld(t, name)
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			former := w.cluster.pki()
			w.cluster.newCA("api-2.example")
			w.cluster.move("api-2.example:6443")
			w.config = w.formerConfiguration(0, func(c map[string]any) {
				kubelet := c["node"].(map[string]any)["kubelet"].(map[string]any)
				kubelet["serverURL"] = w.cluster.URL
				kubelet["caCertData"] = base64.StdEncoding.EncodeToString([]byte(w.cluster.pki()))
			})
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			for path, want := range map[string]string{
				"/etc/kubernetes/certs/ca.crt":                      w.cluster.pki() + former,
				"/var/lib/kubelet/kubeconfig":                       "server: " + w.cluster.URL + "\n",
				"/etc/systemd/system/node-problem-detector.service": w.cluster.URL + "?",
			} {
				if text := w.read(path); !strings.Contains(text, want) || strings.Contains(text, "⟦") {
					t.Errorf("%s has not followed:\n%s", path, text)
				}
			}
			w.finished(t)
		})
	}
}

// A new CA of the cluster is bound into the bytes of a migrated node, without rendering it again.
func TestMigratedNodeFollowsARotatedCA(t *testing.T) {
	for _, name := range []string{"certificate", "principal"} {
		t.Run(name, func(t *testing.T) {
			w := formerWorld(t, name)
			if name == "principal" {
				w.madeOtherwise(t, "/var/lib/kubelet/kubeconfig")
			}
			if err := w.daemonReconciles(); err != nil {
				t.Fatal(err)
			}
			unit, kubelet := w.read("/etc/systemd/system/kubelet.service"), w.pid("kubelet.service")
			former := w.cluster.pki()
			w.cluster.newCA()
			w.publish(w.cluster.azure)
			if err := w.daemonReconciles(); err != nil {
				t.Fatal(err)
			}
			both := w.cluster.pki() + former
			kubeconfig := w.read("/var/lib/kubelet/kubeconfig")
			encoded := base64.StdEncoding.EncodeToString([]byte(both))
			if w.read("/etc/kubernetes/certs/ca.crt") != both || !strings.Contains(kubeconfig, encoded) {
				t.Errorf("the new CA is not trusted:\n%s", kubeconfig)
			}
			if name == "principal" && !strings.Contains(kubeconfig, otherwise) {
				t.Errorf("the kubeconfig was rendered again:\n%s", kubeconfig)
			}
			if w.read("/etc/systemd/system/kubelet.service") != unit || w.pid("kubelet.service") == kubelet {
				t.Error("kubelet was rendered again, or not restarted")
			}
			w.finished(t)
		})
	}
}

// otherwise is a line that this release does not write.
const otherwise = "# and a line that this release does not write\n"

// madeOtherwise makes a file another one than this release renders, which the former release has
// made.
func (w *world) madeOtherwise(t *testing.T, path string) {
	t.Helper()
	text := w.read(path) + otherwise
	w.write(path, text)
	if err := w.systemd.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	journal, err := apply.OpenJournal(w.agent().Machine, agent.StateDir, "ledger.json")
	if err != nil {
		t.Fatal(err)
	}
	entry, _ := journal.Ledger().Entry(state.PathKey(path))
	is := entry.Ours.Resource.(state.File)
	made := state.Plan{{From: is, To: state.NewFile(path, is.Mode, text), Owes: entry.Owes}}
	ledger := journal.Ledger().Record(made).Done(made)
	ledger.Owed = nil
	if err := journal.Save(t.Context(), ledger); err != nil {
		t.Fatal(err)
	}
}

// changed is the archived configuration with other settings, and with further changes.
func (w *world) changed(further ...func(map[string]any)) config.Config {
	change := func(c map[string]any) {
		c["node"].(map[string]any)["maxPods"] = 42
		c["node"].(map[string]any)["labels"] = map[string]any{"example.com/floor": "2"}
	}
	further = append([]func(map[string]any){change}, further...)
	return w.formerConfiguration(len(w.former.Configs)-1, further...)
}

// refuse makes a kubelet whose configuration has a text end at its start.
func (w *world) refuse(text string) {
	start := w.systemd.OnStart
	w.refused = true
	w.systemd.OnStart = func(unit, unitText string) error {
		if unit == "kubelet.service" && strings.Contains(kubeletConfig(w.root), text) {
			return errors.New("this kubelet does not start")
		}
		return start(unit, unitText)
	}
}

func isRollback(err error) bool {
	_, back := errors.AsType[*transition.RolledBackError](err)
	return back
}
