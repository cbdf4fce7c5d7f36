package stories

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/health"
)

// illness describes a fault of a node after a change.
type illness struct {
	// condition is the gate's condition that fails, says is part of the report.
	condition, says string
	// begin makes the node ill; end heals it.
	begin func(*world) (end func())
	// change changes the configuration, besides another kubelet configuration.
	change func(map[string]any)
	// within is another time for the node to become ready than 1500 ms.
	within string
}

func nodeSetting(key string, value any) func(map[string]any) {
	return func(c map[string]any) { c["node"].(map[string]any)[key] = value }
}

// illnesses returns one fault for each condition of the gate that a node can fail after a change.
func illnesses() map[string]illness {
	reports := func(change func(*corev1.Node)) func(*world) func() {
		return func(w *world) func() {
			w.cluster.set(func() { w.cluster.reports = change })
			return func() { w.cluster.set(func() { w.cluster.reports = nil }) }
		}
	}
	while := func(set func(w *world, on bool)) func(*world) func() {
		return func(w *world) func() {
			w.cluster.set(func() { set(w, true) })
			return func() { w.cluster.set(func() { set(w, false) }) }
		}
	}
	stops := func(unit string) func(*world) func() {
		return func(w *world) func() {
			timer := time.AfterFunc(50*time.Millisecond, func() {
				_ = w.systemd.Stop(context.Background(), unit) // systemdtest has no error here
			})
			return func() { timer.Stop() }
		}
	}
	return map[string]illness{
		"containerd ends": {condition: health.ContainerdRunning, says: "does not run",
			begin: stops("containerd.service")},
		"containerd runs without its CRI plugin": {condition: health.ContainerdRunning,
			says: "CRI plugin",
			begin: func(w *world) func() {
				w.deaf.Store(1 << 20)
				return func() { w.deaf.Store(0) }
			}},
		"kubelet ends": {condition: health.KubeletRunning, says: "does not run",
			begin: stops("kubelet.service")},
		"the credential is refused": {condition: health.CredentialValid, says: "401",
			begin: while(func(w *world, on bool) { w.cluster.refused = on })},
		"a proxy cuts the API server off": {condition: health.APIServerReachable, says: "proxy",
			begin:  func(*world) func() { return func() {} },
			change: func(c map[string]any) { c["proxy"] = map[string]any{"https": "http://127.0.0.1:9"} }},
		"kubelet ends again and again": {condition: health.KubeletStable, says: "exited unexpectedly",
			begin: crashing},
		"kubelet is not well": {condition: health.KubeletHealthy, says: "not healthy",
			begin: while(func(w *world, on bool) { w.sick.Store(on) })},
		"the lease is not renewed": {condition: health.LeaseRenewed, says: "lease",
			begin: while(func(w *world, on bool) { w.cluster.lapsed = on })},
		"another kubelet runs": {condition: health.RunsAsConfigured,
			says:  "kubelet is 1.33.0, expected 1.34.4",
			begin: reports(func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.33.0" })},
		"another containerd runs": {condition: health.RunsAsConfigured, says: "containerd is 1.7.1",
			begin: reports(func(n *corev1.Node) {
				n.Status.NodeInfo.ContainerRuntimeVersion = "containerd://1.7.1"
			})},
		"fewer pods fit": {condition: health.RunsAsConfigured, says: "maxPods is 110, expected 42",
			begin: reports(func(n *corev1.Node) { n.Status.Capacity = podCapacity("110") })},
		"another address is announced": {condition: health.RunsAsConfigured, says: "the Node's address",
			begin: reports(func(n *corev1.Node) { n.Status.Addresses[0].Address = "192.0.2.9" })},
		"the disk is under pressure": {condition: health.NodePressure, says: "DiskPressure",
			begin: reports(pressed)},
		"another threshold puts it under pressure in the second status": {
			condition: health.NodePressure, says: "DiskPressure", begin: pressedLater,
			change: evictionHard, within: "4s"},
		"labels are refused": {condition: health.LabelsApplied, says: "example.com/site=south",
			begin:  while(func(w *world, on bool) { w.cluster.unlabelled = on }),
			change: nodeSetting("labels", map[string]any{"example.com/site": "south"})},
		"a pod is not begun with": {condition: health.PodsSynchronized, says: "has not started 1 pod",
			begin: func(w *world) func() { w.cluster.ignore("forgotten"); return w.cluster.clear }},
		"the pod network does not work": {condition: health.NodeReady, says: "pod network",
			begin: func(w *world) func() {
				ready := w.cluster.ready
				w.cluster.set(func() { w.cluster.ready = func(string) bool { return false } })
				return func() { w.cluster.set(func() { w.cluster.ready = ready }) }
			}},
	}
}

// pressedLater delays a kubelet's first status, as a slow machine does, and reports pressure in the
// second.
func pressedLater(w *world) func() {
	ready, started := w.cluster.ready, time.Now()
	seen := 0
	w.cluster.set(func() {
		w.cluster.ready = func(name string) bool {
			if time.Since(started) < 500*time.Millisecond || !ready(name) {
				return false
			}
			if seen++; seen > 1 {
				pressed(w.cluster.nodes[name])
			}
			return true
		}
	})
	return func() { w.cluster.set(func() { w.cluster.ready = ready }) }
}

// crashing returns a kubelet that systemd restarts every few milliseconds.
func crashing(w *world) func() {
	ctx, end := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			w.systemd.Crash("kubelet.service")
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return func() { end(); <-ended }
}

// Each condition of the gate that fails after a change rolls the node back, and is named as the
// reason.
func TestGate(t *testing.T) {
	t.Parallel()
	for name, ill := range illnesses() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.settling = 200 * time.Millisecond
			w.cluster.newCA("api-1.example") // to a loopback address there never is a proxy
			w.cluster.move("api-1.example:6443")
			w.config = w.configuration()
			w.config.Node.Kubelet.NodeIP = "127.0.0.1"
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			applied := w.pointer("applied")
			w.illWhenChanged(ill.begin)
			w.config = w.configuration(nodeSetting("maxPods", 42), func(c map[string]any) {
				if ill.change != nil {
					ill.change(c)
				}
			})
			w.config.Agent.ReadyTimeout = cmp.Or(ill.within, "1500ms")
			w.config.Node.Kubelet.NodeIP = "127.0.0.1"
			_, err := w.bootstrap()
			if !rolledBack(err) {
				t.Fatalf("the error is %v; want that the change was rolled back", err)
			}
			list := w.rejected()
			if len(list) != 1 {
				t.Fatalf("rejected: %+v", list)
			}
			for what, text := range map[string]string{
				"the error": err.Error(), "rejected.json": list[0].Reason,
			} {
				if !strings.Contains(text, ill.condition) || !strings.Contains(text, ill.says) {
					t.Errorf("%s says %q; want %s and %q", what, text, ill.condition, ill.says)
				}
			}
			w.goesOn(applied, w.kubeletSince())
			n := w.cluster.node1()
			if n.Status.Capacity.Pods().Value() != 110 || n.Labels["example.com/site"] != "north" {
				t.Errorf("the Node has %s pods and labels %v", n.Status.Capacity.Pods(), n.Labels)
			}
			if c := w.condition("ConfigurationAccepted"); c.Status != health.False {
				t.Errorf("the condition is %+v", c)
			}
		})
	}
}

// evictionHard is a change of the configuration that may put the Node under pressure.
func evictionHard(c map[string]any) {
	kubelet := c["node"].(map[string]any)["kubelet"].(map[string]any)
	kubelet["evictionHard"] = map[string]any{"nodefs.available": "20%"}
}

// pressed makes a Node report that its disk is too full.
func pressed(n *corev1.Node) {
	n.Status.Conditions = []corev1.NodeCondition{{Type: "DiskPressure", Status: "True"}}
}

// A change does not fail for a pressure that may have been there before: neither if it replaces one
// that has restarted kubelet, nor if kubelet has only just reported again.
func TestPressureAgain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status             corev1.ConditionStatus // before the change
		ago                time.Duration
		replaces, rejected bool
	}{
		"replaced":  {status: corev1.ConditionTrue, replaces: true},
		"lost":      {status: corev1.ConditionUnknown},
		"just back": {status: corev1.ConditionFalse},
		"the cause": {corev1.ConditionFalse, time.Minute, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			w.cluster.set(func() {
				w.cluster.nodes["edge-1"].Status.Conditions = []corev1.NodeCondition{{Type: "DiskPressure",
					Status: tt.status, LastTransitionTime: metav1.NewTime(time.Now().Add(-tt.ago))}}
			})
			w.config = w.configuration(nodeSetting("maxPods", 42))
			if tt.replaces {
				w.interruptChanged()
				w.config = w.configuration(nodeSetting("maxPods", 44))
			}
			w.cluster.set(func() { w.cluster.reports = pressed })
			w.config.Agent.ReadyTimeout = "20s" // also on a busy machine
			if _, err := w.bootstrap(); rolledBack(err) != tt.rejected || !tt.rejected && err != nil {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// A change or a rollback by hand does not fail for a pressure that was there before.
func TestPressureBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cluster.reports = pressed
	for _, pods := range []int{110, 42} {
		w.config = w.configuration(nodeSetting("maxPods", pods))
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.run(func(ctx context.Context, a *change.Agent) error {
		_, err := change.Rollback(ctx, a, "")
		return err
	}); err != nil {
		t.Error(err)
	}
	if c := w.condition(health.NodePressure); c.Status != health.False {
		t.Errorf("the condition is %+v", c)
	}
}

// The smallest accepted readyTimeout leaves a kubelet time to prove that it is healthy.
func TestLeastReadyTimeout(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		least := readyTimeout("10s")
		s.edit(least)
		s.join()
		s.edit(least, pods(42), evictionHard)
		s.until(time.Minute, "the change is made", s.takes("42"))
		s.healthy("42")
		if list := s.rejected(); len(list) > 0 {
			t.Errorf("rejected: %+v", list)
		}
		for _, less := range []string{"9s", "9999ms"} {
			s.edit(readyTimeout(less))
			if _, err := s.load(); err == nil || !strings.Contains(err.Error(), "from 10s") {
				t.Errorf("with %s, the error is %v", less, err)
			}
		}
	})
}

// illWhenChanged makes the node ill whenever kubelet starts with another configuration than the
// present one.
func (w *world) illWhenChanged(begin func(*world) func()) {
	healthy, start := kubeletConfig(w.root), w.systemd.OnStart
	end := func() {}
	w.systemd.OnStart = func(unit, text string) error {
		if unit == "kubelet.service" {
			end()
			end = func() {}
			if kubeletConfig(w.root) != healthy {
				end = begin(w)
			}
		}
		return start(unit, text)
	}
}

// Requirements that the machine cannot meet are refused before any change (R6, R7).
func TestUnsatisfiable(t *testing.T) {
	kubelet := func(key string, value any) func(map[string]any) {
		return func(c map[string]any) {
			c["node"].(map[string]any)["kubelet"].(map[string]any)[key] = value
		}
	}
	for name, tt := range map[string]struct {
		change func(map[string]any)
		want   []string
	}{
		"reserved": {kubelet("kubeReserved", map[string]any{"cpu": "900", "memory": "900Gi"}),
			[]string{"ReservationsFit", "cpu", "memory", "lower kubeReserved"}},
		"evicted": {kubelet("evictionHard", map[string]any{"memory.available": "99%"}),
			[]string{"ReservationsFit", "memory"}},
		"foreign nodeIP": {kubelet("nodeIP", "203.0.113.7"),
			[]string{"NodeAddressPresent", "203.0.113.7"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			before := w.tree()
			healthy := w.config
			w.config = w.configuration(tt.change)
			refuse := func() {
				t.Helper()
				touches := w.touched()
				_, err := w.bootstrap()
				for _, want := range tt.want {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("the error is %v; want %q", err, want)
					}
				}
				if w.touched() != touches {
					t.Error("the machine was touched")
				}
			}
			refuse()
			w.same(before)
			changed := w.config
			w.config = healthy
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			applied, since := w.pointer("applied"), w.kubeletSince()
			w.config = changed
			refuse()
			w.goesOn(applied, since)
		})
	}
}

// podCapacity returns a capacity of pods.
func podCapacity(number string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourcePods: resource.MustParse(number)}
}

// A gate that stays closed for long queries the cluster less and less often, keeps its connections
// (more than one to this cluster, which does not support HTTP/2), and lists the pods only when
// everything else is healthy.
func TestGateIsGentle(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.join()
		ready := s.cluster.ready
		s.onKubelet(func() error {
			s.cluster.set(func() { s.cluster.ready = func(string) bool { return false } })
			return nil
		})
		s.edit(readyTimeout("20m"), pods(42))
		s.sleep(2 * time.Minute)
		var nodes, lists atomic.Int64
		s.cluster.set(func() {
			s.cluster.dials = 0
			s.cluster.ill = func(r *http.Request) int {
				switch {
				case r.URL.Path == "/api/v1/pods":
					lists.Add(1)
				case r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/api/v1/nodes/"):
					nodes.Add(1)
				}
				return 0
			}
		})
		s.sleep(10 * time.Minute)
		var dials int
		s.cluster.set(func() { dials = s.cluster.dials })
		if n := nodes.Load(); n < 80 || n > 180 || lists.Load() > 0 || dials > 4 {
			t.Errorf("in ten minutes the Node is read %d times, and pods %d times, over %d connections",
				n, lists.Load(), dials)
		}
		s.cluster.set(func() { s.cluster.ready = ready })
		s.until(30*time.Second, "the change is made", func() bool { return s.is().Transition == nil })
		s.healthy("42")
	})
}
