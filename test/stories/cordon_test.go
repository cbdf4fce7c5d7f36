package stories

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// upgrade sets the next minor version in the configuration, and adds it to the store of artifacts.
func (w *world) upgrade() {
	w.t.Helper()
	w.config = w.configuration(w.kubernetes("1.35.4", "1.35.4"))
}

func (w *world) cordoned() bool {
	w.cluster.mu.Lock()
	defer w.cluster.mu.Unlock()
	n := w.cluster.nodes["edge-1"]
	return n != nil && n.Spec.Unschedulable
}

// keepsCordon fails if the Node of a machine whose Kubernetes version changes accepts new pods
// before that change is committed.
func (w *world) keepsCordon() {
	healthy, ready := w.cluster.nodes["edge-1"].Status.NodeInfo.KubeletVersion, w.cluster.ready
	start := w.systemd.OnStart
	w.systemd.OnStart = func(unit, text string) error {
		if unit == "kubelet.service" && !w.cordoned() {
			w.t.Error("kubelet is replaced while the Node takes pods")
		}
		return start(unit, text)
	}
	w.cluster.ready = func(name string) bool {
		n := w.cluster.nodes[name]
		record, _ := os.ReadFile(w.root + "/var/lib/aks-flex-node/transition.json")
		proving := strings.Contains(string(record), `"phase": "gate"`)
		if proving && n.Status.NodeInfo.KubeletVersion != healthy && !n.Spec.Unschedulable {
			w.t.Error("the Node takes pods before it has proved to be healthy")
		}
		return ready(name)
	}
}

// The Node of a machine whose Kubernetes version changes accepts no pods until the change is
// committed; one that its operator has cordoned stays cordoned.
func TestCordon(t *testing.T) {
	for _, operators := range []bool{false, true} {
		w := newWorld(t)
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
		w.cluster.set(func() { w.cluster.nodes["edge-1"].Spec.Unschedulable = operators })
		w.upgrade()
		w.keepsCordon()
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
		if w.cordoned() != operators {
			t.Errorf("cordoned by the operator: %v, and afterwards: %v", operators, w.cordoned())
		}
	}
}

// A change that drains uses the new password of the proxy: the old one may have ended.
func TestProxyPassword(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cluster.newCA("api-1.example")
	w.cluster.move("api-1.example:6443")
	for _, password := range []string{"old", "new"} {
		w.config = w.configuration(func(c map[string]any) {
			c["proxy"] = map[string]any{"https": "http://user:" + password + "@proxy.example:3128"}
			c["agent"].(map[string]any)["upgradePolicy"] = map[string]any{"drain": "always"}
		})
		err := w.run(func(ctx context.Context, a *change.Agent) error {
			dial := a.Dial
			a.Dial = func(ctx context.Context, network, where string) (net.Conn, error) {
				if where != "proxy.example:3128" {
					return dial(ctx, network, where)
				}
				here, there := net.Pipe()
				go tunnel(there, password, func() (net.Conn, error) {
					return dial(context.WithoutCancel(ctx), network, w.cluster.at)
				})
				return here, nil
			}
			_, err := change.Bootstrap(ctx, a, change.Input{Config: w.config, Origin: "file"})
			return err
		})
		if err != nil {
			t.Fatalf("%s: %v", password, err)
		}
		w.cluster.run("web")
	}
	if len(w.cluster.evicted) != 1 {
		t.Errorf("evicted are %v", w.cluster.evicted)
	}
}

// tunnel serves a connection to a proxy, which requires a password.
func tunnel(client net.Conn, password string, dial func() (net.Conn, error)) {
	defer client.Close()
	r, err := http.ReadRequest(bufio.NewReader(client))
	if err != nil {
		return
	}
	r.Header.Set("Authorization", r.Header.Get("Proxy-Authorization"))
	if _, is, _ := r.BasicAuth(); is != password {
		_, _ = io.WriteString(client, "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
		return
	}
	server, err := dial()
	if err != nil {
		return
	}
	defer server.Close()
	_, _ = io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
	go func() {
		_, _ = io.Copy(server, client)
		server.Close()
	}()
	_, _ = io.Copy(client, server)
}

// A Node that cannot be observed is not drained.
func TestNoCordonNoDrain(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.config = w.configuration(nodeSetting("maxPods", 42), func(c map[string]any) {
		c["agent"].(map[string]any)["upgradePolicy"] = map[string]any{"drain": "always"}
	})
	w.config.Agent.ReadyTimeout = "1s"
	w.fails(http.MethodGet, "/api/v1/nodes/")
	_, err := w.bootstrap()
	if err == nil || !strings.Contains(err.Error(), "cannot cordon Node edge-1") {
		t.Errorf("the error is %v", err)
	}
}

// A change that drains is made while the Node is missing, which registers it again.
func TestChangeWithoutANode(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.cluster.set(func() { delete(w.cluster.nodes, "edge-1") })
	w.upgrade()
	if err := w.daemonReconciles(); err != nil {
		t.Error(err)
	}
	if !w.cluster.has("edge-1") || w.cordoned() || w.kubeletVersion() != "v1.35.4" {
		t.Errorf("cordoned %t, kubelet %s", w.cordoned(), w.kubeletVersion())
	}
}

// Garbage that cannot be removed, here a file below which something is mounted, keeps no Node
// cordoned and blocks no change.
func TestGarbageThatStays(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can mount; make test, run as root, has it")
	}
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	link, err := os.Readlink(filepath.Join(w.root, "/usr/local/bin/kubelet"))
	if err != nil {
		t.Fatal(err)
	}
	busy := filepath.Join(w.root, link)
	if err := unix.Mount("/bin/true", busy, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		mounts, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(busy)), "*/kubelet"))
		hidden, err2 := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(busy)), ".*/kubelet"))
		if errors.Join(err, err2) != nil {
			t.Error(err, err2)
		}
		for _, at := range append(mounts, hidden...) {
			_ = unix.Unmount(at, unix.MNT_DETACH) // most are no mounts
		}
	})
	for _, version := range []string{"1.34.5", "1.35.1"} {
		w.config = w.configuration(w.kubernetes(version, version))
		if err := w.daemonReconciles(); err != nil {
			t.Error(err)
		}
		if w.cordoned() || w.kubeletVersion() != "v"+version || w.underWay() != "" {
			t.Errorf("cordoned %t, kubelet %s, under way %s", w.cordoned(), w.kubeletVersion(),
				w.underWay())
		}
	}
}

// leavesItsNode gives the machine back with a drain; its Node cannot be deleted, and is cordoned.
func (w *world) leavesItsNode() {
	w.t.Helper()
	w.cluster.set(func() { w.cluster.keep = true })
	err := w.run(func(ctx context.Context, a *change.Agent) error {
		_, err := change.Unbootstrap(ctx, a, nil, change.Leave{
			Options: transition.Options{DrainTimeout: time.Minute}})
		return err
	})
	if err == nil || !w.cordoned() {
		w.t.Fatalf("%v; cordoned %t", err, w.cordoned())
	}
}

// A Node that could not be deleted when its machine left is cordoned until that machine joins
// again, unless others have cordoned it.
func TestJoinAfterALeaveUncordons(t *testing.T) {
	t.Parallel()
	for _, others := range []bool{false, true} {
		w := newWorld(t)
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
		w.cluster.set(func() { w.cluster.nodes["edge-1"].Spec.Unschedulable = others })
		w.leavesItsNode()
		if _, err := w.bootstrap(); err != nil || w.cordoned() != others {
			t.Errorf("%v; cordoned %t, want %t", err, w.cordoned(), others)
		}
	}
}

// The same for a Node that a change has cordoned which was given up, or whose machine was installed
// again since.
func TestJoinAfterAChangeUncordons(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	joined := w.config
	w.upgrade()
	w.interruptChanged()
	installed := newWorld(t)
	installed.cluster.nodes["edge-1"] = new(w.cluster.node1())
	if !installed.cordoned() {
		t.Error("the change has not cordoned the Node")
	}
	if _, err := installed.bootstrap(); err != nil || installed.cordoned() {
		t.Errorf("installed again: %v; cordoned %t", err, installed.cordoned())
	}
	w.leavesItsNode()
	w.config = joined
	if _, err := w.bootstrap(); err != nil || w.cordoned() {
		t.Errorf("%v; cordoned %t", err, w.cordoned())
	}
}
