package stories

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// readyWith makes the Node Ready while kubelet has one of these numbers of pods.
func (w *world) readyWith(pods ...string) {
	ready := w.cluster.ready
	w.cluster.set(func() {
		w.cluster.ready = func(name string) bool {
			for _, p := range pods {
				if maxPods(w.root) == p {
					return ready(name)
				}
			}
			return false
		}
	})
}

// underWay returns the record of the transition on disk; "" without one.
func (w *world) underWay() string {
	text, _ := os.ReadFile(filepath.Join(w.root, saved.StateDir, "transition.json"))
	return string(text)
}

// A rollback whose gate cannot pass, since the machine no longer fits the applied configuration,
// gives way to the next configuration, by the daemon or by a person, even if the machine is
// restored only then.
func TestRollbackGivesWay(t *testing.T) {
	t.Parallel()
	byHand := func(w *world) error { _, err := w.bootstrap(); return err }
	for name, tt := range map[string]struct {
		run    func(w *world) error
		killed bool
	}{
		"daemon": {run: (*world).daemonReconciles}, "bootstrap": {run: byHand},
		"daemon restoring":    {(*world).daemonReconciles, true},
		"bootstrap restoring": {byHand, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			applied := w.pointer("applied")
			w.readyWith("44")
			w.config = w.configuration(nodeSetting("maxPods", 42))
			w.config.Agent.ReadyTimeout = "2s"
			if tt.killed {
				w.dieRestoring()
			}
			if err := w.daemonReconciles(); err == nil || rolledBack(err) {
				t.Fatalf("the error is %v; want that it cannot go back", err)
			}
			w.blow(-1)
			if record := w.underWay(); !strings.Contains(record, `"kind": "rollback"`) {
				t.Fatalf("under way is %s", record)
			}
			w.config = w.configuration(nodeSetting("maxPods", 44))
			if err := tt.run(w); err != nil {
				t.Fatal(err)
			}
			if record, is := w.underWay(), w.pointer("applied"); record != "" || is == applied {
				t.Errorf("applied is %.12s, under way is %s", is, record)
			}
			if previous := w.pointer("previous"); previous != applied {
				t.Errorf("the previous generation is %.12s, want %.12s", previous, applied)
			}
			w.steady("with the next configuration")
		})
	}
}

// dieRestoring kills the process when kubelet is started with the restored configuration.
func (w *world) dieRestoring() {
	start, healthy := w.systemd.OnStart, kubeletConfig(w.root)
	changed := false
	w.systemd.OnStart = func(unit, text string) error {
		if unit == "kubelet.service" {
			is := kubeletConfig(w.root)
			if changed && is == healthy {
				w.systemd.OnStart = start
				w.blow(0)
			}
			changed = changed || is != healthy
		}
		return start(unit, text)
	}
}

// A change that replaces a half-applied one, and fails before it touches anything, leaves the
// machine with the applied configuration.
func TestSupersededChangeThatFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	applied, healthy := w.pointer("applied"), w.config
	w.readyWith("110")
	w.config = w.configuration(nodeSetting("maxPods", 42))
	w.interruptChanged()
	if record := w.underWay(); !strings.Contains(record, `"touched": true`) {
		t.Fatalf("under way is %s", record)
	}
	w.config = w.configuration(nodeSetting("maxPods", 43), w.kubernetes("1.34.9", "1.34.9"))
	if err := os.RemoveAll(filepath.Join(w.store, "dl.k8s.io/v1.34.9")); err != nil {
		t.Fatal(err)
	}
	if err := w.daemonReconciles(); err == nil {
		t.Error("the configuration that cannot be fetched is applied")
	}
	if record := w.underWay(); record != "" {
		t.Errorf("under way is %s", record)
	}
	if is := maxPods(w.root); is != "110" {
		t.Errorf("kubelet takes %s pods", is)
	}
	for _, pointer := range []string{"applied", "live"} {
		if is := w.pointer(pointer); is != applied {
			t.Errorf("%s is %.12s, want %.12s", pointer, is, applied)
		}
	}
	if list := w.rejected(); len(list) > 0 {
		t.Errorf("what could not be fetched is rejected: %+v", list)
	}
	w.config = healthy
	w.steady("with the applied configuration")
}

// The same for a successor that a check of the machine or cluster refuses; the downloads of the
// first change may have filled the disk. With the applied configuration no check is needed.
func TestSupersededChangeWithoutSuccessor(t *testing.T) {
	t.Parallel()
	full := func(f *host.Facts) { f.Free["/var/lib"] = 1 << 20 }
	for version, tt := range map[string]struct { // of kubelet's successor
		facts func(*host.Facts)
		want  string
	}{"1.36.1": {nil, "1.36.1"}, "1.35.1": {full, "DiskSpace"}, "": {full, ""}} {
		t.Run(version+" "+tt.want, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			before, applied := w.kubeletVersion(), w.config
			w.readyWith("110")
			w.config = w.configuration(nodeSetting("maxPods", 42), w.kubernetes("1.35.1", "1.35.1"))
			w.interruptChanged()
			if !w.cordoned() {
				t.Fatalf("not cordoned; under way is %s", w.underWay())
			}
			if w.facts, w.config = tt.facts, applied; version != "" {
				w.config = w.configuration(nodeSetting("maxPods", 43), w.kubernetes(version, version))
			}
			for range 2 {
				err := w.daemonReconciles()
				if (err != nil) != (tt.want != "") || !strings.Contains(fmt.Sprint(err), tt.want) {
					t.Errorf("the error is %v, want %q", err, tt.want)
				}
			}
			if w.cordoned() || maxPods(w.root) != "110" || w.kubeletVersion() != before ||
				w.underWay() != "" {
				t.Errorf("cordoned %t, %s pods, kubelet %s, under way %s", w.cordoned(), maxPods(w.root),
					w.kubeletVersion(), w.underWay())
			}
		})
	}
}

// The downloads of a failed change, which has not touched the machine, do not prevent its retry.
func TestFailedDownloadLeavesRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	entries := func() int {
		list, err := os.ReadDir(filepath.Join(w.root, node.StoreDir))
		if err != nil {
			t.Error(err)
		}
		return len(list)
	}
	least := entries()
	w.facts = func(f *host.Facts) {
		if entries() > least {
			f.Free["/var/lib"] = 1 << 20
		}
	}
	w.upgrade()
	missing := filepath.Join(w.store, "dl.k8s.io/v1.35.4/bin/linux", runtime.GOARCH, "kubeadm")
	if err := os.Rename(missing, missing+".later"); err != nil {
		t.Fatal(err)
	}
	if err := w.daemonReconciles(); err == nil || entries() == least {
		t.Fatalf("the error is %v, and %d artifacts are stored", err, entries())
	}
	if err := os.Rename(missing+".later", missing); err != nil {
		t.Fatal(err)
	}
	if err := w.daemonReconciles(); err != nil || w.kubeletVersion() != "v1.35.4" {
		t.Errorf("kubelet is %s, the error is %v", w.kubeletVersion(), err)
	}
	w.facts = func(f *host.Facts) { f.Free["/var/lib"] = 1 << 20 }
	w.config = w.configuration(nodeSetting("maxPods", 42))
	if err := w.daemonReconciles(); !strings.Contains(fmt.Sprint(err), "DiskSpace") {
		t.Errorf("on a full disk the error is %v", err)
	}
}

// watching is a mirror without files that calls a function at each request.
type watching func()

func (f watching) RoundTrip(r *http.Request) (*http.Response, error) {
	f()
	return overloaded{}.RoundTrip(r)
}

// A third change keeps the artifacts that run, although the second one has been cut off since it
// went live and before it changed a link.
func TestThirdChangeKeepsWhatRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.readyWith("110")
	w.config = w.configuration(nodeSetting("maxPods", 42), w.kubernetes("1.35.1", "1.35.1"))
	w.interruptChanged()
	live := w.pointer("live")
	w.config = w.configuration(nodeSetting("maxPods", 43), w.kubernetes("1.35.4", "1.35.4"))
	w.blowOnce(func() bool { return w.pointer("live") != live })
	if err := w.daemonReconciles(); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	w.blow(-1)
	link, err := os.Readlink(filepath.Join(w.root, "usr/local/bin/kubelet"))
	if version := w.kubeletVersion(); err != nil || version != "v1.35.1" {
		t.Fatalf("kubelet is %s, %v", version, err)
	}
	w.config = w.configuration(w.kubernetes("1.34.9", "1.34.9"), func(c map[string]any) {
		c["artifacts"].(map[string]any)["mirror"] = "https://mirror.example"
		delete(c["artifacts"].(map[string]any), "directory")
	})
	asked := false
	err = w.run(func(ctx context.Context, a *change.Agent) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		w.mirror = watching(func() { asked = true; cancel() })
		return w.watcher(a).Reconcile(ctx).Err
	})
	if _, gone := os.Stat(filepath.Join(w.root, link)); gone != nil || !asked {
		t.Errorf("requests were made: %t, %v; the change: %v", asked, gone, err)
	}
}

// interruptChanged runs the daemon's reconciliation and interrupts it once kubelet has started with
// another configuration, like the daemon does for a new one.
func (w *world) interruptChanged() {
	w.t.Helper()
	start, healthy := w.systemd.OnStart, kubeletConfig(w.root)
	err := w.run(func(ctx context.Context, a *change.Agent) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		w.systemd.OnStart = func(unit, text string) error {
			if unit == "kubelet.service" && kubeletConfig(w.root) != healthy {
				cancel()
			}
			return start(unit, text)
		}
		return w.watcher(a).Reconcile(ctx).Err
	})
	w.systemd.OnStart = start
	if err == nil {
		w.t.Fatal("the change was not interrupted")
	}
}

// A Node that cannot be uncordoned keeps its change under way until it can; the next change waits
// for the end of a pause nevertheless.
func TestUncordonIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.upgrade()
	w.cluster.set(func() { w.cluster.stuck = true })
	reconciles := func(want string) {
		t.Helper()
		if err := w.daemonReconciles(); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
	reconciles("cannot be uncordoned")
	if record := w.underWay(); !strings.Contains(record, `"phase": "commit"`) {
		t.Errorf("under way is %s", record)
	}
	if version := w.kubeletVersion(); version != "v1.35.4" || !w.cordoned() {
		t.Errorf("kubelet is %s, cordoned: %t", version, w.cordoned())
	}
	upgraded := w.config
	w.config = w.configuration(nodeSetting("maxPods", 42), w.kubernetes("1.35.4", "1.35.4"))
	if _, err := change.SetPause(t.Context(), w.agent(), time.Hour, "a new disk"); err != nil {
		t.Fatal(err)
	}
	reconciles("cannot be uncordoned")
	w.cluster.set(func() { w.cluster.stuck = false })
	reconciles("a new disk")
	if w.cordoned() || w.underWay() != "" || maxPods(w.root) != "110" {
		t.Errorf("cordoned: %t, %s pods, under way is %s", w.cordoned(), maxPods(w.root), w.underWay())
	}
	w.config = upgraded
	w.steady("with the Node uncordoned")
}

// uncordons reports whether a patch makes a Node schedulable, and refuses it in a stuck cluster.
func (c *cluster) uncordons(spec map[string]any, w http.ResponseWriter) bool {
	cordon, ok := spec["unschedulable"]
	if !c.stuck || !ok || cordon == true {
		return false
	}
	fail(w, http.StatusInternalServerError, "InternalError")
	return true
}

// A node whose desired configuration was rejected, or cannot be read, follows its cluster
// nevertheless, and evicts no pods.
func TestFollowsClusterWhateverIsWanted(t *testing.T) {
	t.Parallel()
	rejected := func(w *world) { w.config = w.rejects(42) }
	for name, tt := range map[string]struct {
		want       func(*world)
		unreadable error
		ill, again bool // the new API server fails once kubelet has its CA, and has another one then
		drain      string
	}{
		"rejected":   {want: rejected},
		"ill":        {want: rejected, ill: true},
		"again":      {want: rejected, ill: true, again: true},
		"unreadable": {want: func(*world) {}, unreadable: errors.New("the file is damaged")},
		"drained":    {want: func(*world) {}, unreadable: errors.New("damaged"), drain: "always"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, sim := azureWorld(t)
			w.config.Agent.UpgradePolicy.Drain = tt.drain
			w.knowing()
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			tt.want(w)
			w.cluster.run("web")
			applied, former := w.pointer("applied"), w.cluster.pki()
			w.cluster.newCA("api-1.example")
			w.publish(sim)
			if tt.ill {
				start := w.systemd.OnStart
				w.systemd.OnStart = func(unit, text string) error {
					w.fails(http.MethodGet, "/api/v1/nodes/")
					return start(unit, text)
				}
				if err := w.daemonRuns(nil); !errors.Is(err, transition.ErrUndecided) {
					t.Errorf("the error is %v", err)
				}
				w.systemd.OnStart = start
				w.works()
			}
			if tt.again {
				w.cluster.newCA("api-1.example")
				w.publish(sim)
			}
			if err := w.daemonRuns(tt.unreadable); err == nil {
				t.Error("the daemon is silent about the configuration")
			}
			w.follows(former)
			if is := w.pointer("applied"); is != applied || len(w.cluster.evicted) > 0 {
				t.Errorf("applied is %.12s, want %.12s; evicted %v", is, applied, w.cluster.evicted)
			}
			if c := w.condition(health.APIServerReachable); c.Status != health.True {
				t.Errorf("the condition is %+v", c)
			}
		})
	}
}

// The applied configuration is not rejected when it fails on a machine with other facts: the node
// is as configured, and follows its cluster.
func TestFactsThatFail(t *testing.T) {
	t.Parallel()
	w, sim := azureWorld(t)
	w.knowing()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	applied, start := w.pointer("applied"), w.systemd.OnStart
	w.write("/run/systemd/resolve/resolv.conf", "nameserver 192.0.2.2\n")
	if !w.check().Reconcile {
		t.Error("pods keep another resolver than the machine has")
	}
	w.refuseChangedKubelet()
	if err := w.daemonReconciles(); !rolledBack(err) {
		t.Fatalf("the error is %v; want that it was rolled back", err)
	}
	if err := w.daemonReconciles(); err == nil || rolledBack(err) {
		t.Errorf("what has failed is tried again: %v", err)
	}
	if c := w.condition("ConfigurationAccepted"); c.Status != health.True {
		t.Errorf("the condition is %+v", c)
	}
	w.systemd.OnStart = start
	former := w.cluster.pki()
	w.cluster.newCA("api-1.example")
	w.publish(sim)
	if err := w.daemonReconciles(); err == nil {
		t.Error("the daemon is silent about what has failed")
	}
	w.follows(former)
	if is := w.pointer("applied"); is != applied {
		t.Errorf("applied is %.12s, want %.12s", is, applied)
	}
}
