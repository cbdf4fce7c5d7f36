package stories

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/release"
)

// kubernetes returns a change to a version of Kubernetes, which is in the store; "" leaves it open.
// offered is the version in the store then.
func (w *world) kubernetes(version, offered string) func(map[string]any) {
	return func(c map[string]any) {
		c["kubernetes"] = map[string]any{}
		if version != "" {
			c["kubernetes"] = map[string]any{"version": version}
		}
		overrides := c["artifacts"].(map[string]any)["overrides"].(map[string]any)
		for _, name := range []string{"kubelet", "kubectl", "kubeadm"} {
			text := fmt.Sprintf("#!/bin/sh\n# %s v%s\n", name, offered)
			path := filepath.Join(w.store, "dl.k8s.io/v"+offered+"/bin/linux/"+runtime.GOARCH, name)
			if err := errors.Join(
				os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
				w.t.Fatal(err)
			}
			sum := sha256.Sum256([]byte(text))
			overrides[name] = map[string]any{"sha256": hex.EncodeToString(sum[:])}
		}
	}
}

// kubeletVersion returns the version of the installed kubelet.
func (w *world) kubeletVersion() string {
	target, _ := os.Readlink(filepath.Join(w.root, "/usr/local/bin/kubelet"))
	text, _ := os.ReadFile(filepath.Join(w.root, target))
	if _, version, ok := strings.Cut(string(text), "# kubelet "); ok {
		return strings.TrimSpace(version)
	}
	return "v1.34.4"
}

// containerdVersion returns the version of the running containerd.
func (w *world) containerdVersion() string {
	return cmp.Or(w.config.Containerd.Version, w.containerd)
}

// reads runs bootstrap with a document as read on this machine: settings that it leaves open stay
// as they were resolved. On a machine that is no node the program's defaults apply, which are the
// previous ones, if any.
func (w *world) reads(
	document map[string]any, defaults *config.Config,
) (result change.Result, err error) {
	w.t.Helper()
	text, err := json.Marshal(document)
	if err != nil {
		return result, err
	}
	canonical, err := config.Canonical(text)
	if err != nil {
		return result, err
	}
	err = w.run(func(ctx context.Context, a *change.Agent) error {
		before, err := inspect.Applied(ctx, &a.Env)
		if err != nil {
			return err
		}
		host := config.Host{HostName: "edge-1", Arch: runtime.GOARCH, Before: cmp.Or(before, defaults)}
		loaded, err := config.Parse(text, host)
		c := loaded.Config
		if err != nil {
			return err
		}
		w.config = c
		result, err = change.Bootstrap(ctx, a, change.Input{Config: c, Document: canonical,
			Origin: "file"})
		return err
	})
	return result, err
}

// A version that is left open is the API server's own if its digest is known, else the newest known
// one that is not newer.
func TestVersionFollowsCluster(t *testing.T) {
	for _, tt := range []struct{ server, want string }{
		{"v1.36.3", "1.36.3"},
		{"v1.35.1", "1.35.1"},
		{"v1.34.4", "1.34.4"},
		{"v1.34.9-eks-1", "1.34.9"},
		{"v1.33.9", "1.33.8"},
		{"v1.37.2", release.Pinned("kubelet")[0]},
	} {
		t.Run(tt.server, func(t *testing.T) {
			w := newWorld(t)
			w.cluster.version = tt.server
			w.config = w.configuration(w.kubernetes("", tt.want))
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			if is := w.cluster.node1().Status.NodeInfo.KubeletVersion; is != "v"+tt.want {
				t.Errorf("kubelet is %s, want %s", is, tt.want)
			}
		})
	}
}

// Versions that depend on Kubernetes' and are left open too follow it: this node gets those that
// work with its cluster, and keeps them.
func TestOpenVersionsFollowKubernetes(t *testing.T) {
	w := newWorld(t)
	w.cluster.version = "v1.36.3"
	goes := release.Set{Kubernetes: "1.36.3"}.Filled()
	w.containerd = goes.Containerd
	w.config = w.configuration(w.kubernetes("", "1.36.3"), func(c map[string]any) {
		delete(c, "containerd")
		delete(c, "runc")
	})
	const runc = "github.com/opencontainers/runc/releases/download/v%s/runc." + runtime.GOARCH
	w.copyArtifact(fmt.Sprintf(runc, "1.3.4"), fmt.Sprintf(runc, goes.Runc))
	const containerd = "github.com/containerd/containerd/releases/download/v%[1]s/" +
		"containerd-%[1]s-linux-" + runtime.GOARCH + ".tar.gz"
	w.copyArtifact(fmt.Sprintf(containerd, "2.2.7"), fmt.Sprintf(containerd, goes.Containerd))
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	applied := w.pointer("applied")
	if result, err := w.bootstrap(); err != nil || result.Changes > 0 {
		t.Errorf("the same again: %d changes, %v", result.Changes, err)
	}
	if now := w.pointer("applied"); now != applied {
		t.Error("the same again: the node is another")
	}
}

// Versions that cannot work with the API server are refused before any change, on a machine that is
// no node yet and on one that is.
func TestVersionsThatDoNotWork(t *testing.T) {
	for _, tt := range []struct{ name, server, kubelet, want string }{
		{"newer", "v1.33.9", "1.34.4", "set kubernetes.version to 1.33"},
		{"too old", "v1.38.0", "1.34.4", "set kubernetes.version to 1.3"},
		{"none is known", "v1.29.3", "", "set kubernetes.version"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			before := w.tree()
			version := w.cluster.version
			refuse := func(when string) {
				t.Helper()
				w.cluster.set(func() { w.cluster.version = tt.server })
				w.config = w.configuration(w.kubernetes(tt.kubelet, "1.34.4"))
				touches := w.touched()
				_, err := w.bootstrap()
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%s: the error is %v; want %q", when, err, tt.want)
				}
				if w.touched() != touches {
					t.Errorf("%s: the machine was touched", when)
				}
			}
			refuse("before the join")
			w.same(before)
			w.cluster.set(func() { w.cluster.version = version })
			w.config = w.configuration()
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			applied, since := w.pointer("applied"), w.kubeletSince()
			refuse("on a node")
			w.goesOn(applied, since)
		})
	}
}

// fails makes the cluster answer requests for a path with 503.
func (w *world) fails(method, path string) {
	w.cluster.set(func() {
		w.cluster.ill = func(r *http.Request) int {
			if r.Method == method && strings.HasPrefix(r.URL.Path, path) {
				return http.StatusServiceUnavailable
			}
			return 0
		}
	})
}

// works ends what fails has begun.
func (w *world) works() { w.cluster.set(func() { w.cluster.ill = nil }) }

// Another version of kubelet is refused while the API server does not report its own; other changes
// are made.
func TestServerVersionUnknown(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	applied, since := w.pointer("applied"), w.kubeletSince()
	w.fails(http.MethodGet, "/version")
	w.config = w.configuration(w.kubernetes("1.35.1", "1.35.1"))
	if _, err := w.bootstrap(); err == nil ||
		!strings.Contains(err.Error(), "version of the API server") {
		t.Errorf("the error is %v", err)
	}
	w.goesOn(applied, since)
	w.config = w.configuration(nodeSetting("maxPods", 42))
	if _, err := w.bootstrap(); err != nil {
		t.Errorf("a change that keeps the version: %v", err)
	}
	if c := w.condition(health.VersionsCompatible); c.Status != health.Unknown {
		t.Errorf("the condition is %+v", c)
	}
	w.works()
	w.config = w.configuration(w.kubernetes("1.35.1", "1.35.1"))
	if _, err := w.bootstrap(); err != nil {
		t.Error(err)
	}
}

// A kubelet that is newer than the API server is not committed, and status finds one that the
// cluster has left behind. Other changes, and the rollback, are not delayed by it.
func TestVersionsOfANode(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if c := w.condition(health.VersionsCompatible); c.Status != health.True {
		t.Errorf("the condition is %+v", c)
	}
	w.illWhenChanged(func(w *world) func() { // after the preflight has seen a newer one
		w.cluster.set(func() { w.cluster.version = "v1.34.9" })
		return func() { w.cluster.set(func() { w.cluster.version = "v1.38.0" }) }
	})
	w.config = w.configuration(w.kubernetes("1.35.1", "1.35.1"), nodeSetting("maxPods", 42))
	w.config.Agent.ReadyTimeout = "1500ms"
	_, err := w.bootstrap()
	if !rolledBack(err) || !strings.Contains(err.Error(), "kubelet must not be newer") {
		t.Errorf("the error is %v", err)
	}
	if c := w.condition(health.VersionsCompatible); c.Reason != "KubeletTooOld" {
		t.Errorf("the condition is %+v", c)
	}
}

// The version that an owner left open stays as it was resolved: when the cluster is upgraded, when
// the program's defaults change, and when other settings change.
func TestOpenVersionRemains(t *testing.T) {
	w := newWorld(t)
	w.cluster.version = "v1.34.4"
	var document map[string]any
	w.configuration(w.kubernetes("", "1.34.4"), func(c map[string]any) {
		document = c
		delete(c, "containerd")
	})
	const releases = "github.com/containerd/containerd/releases/download/"
	w.copyArtifact(releases+"v2.2.7/containerd-2.2.7-linux-"+runtime.GOARCH+".tar.gz",
		releases+"v2.2.6/containerd-2.2.6-linux-"+runtime.GOARCH+".tar.gz")
	older := &config.Config{Containerd: config.Containerd{Version: "2.2.6"}}
	if _, err := w.reads(document, older); err != nil {
		t.Fatal(err)
	}
	applied := w.pointer("applied")
	w.cluster.set(func() { w.cluster.version = "v1.35.1" })
	if result, err := w.reads(document, nil); err != nil || result.Changes > 0 {
		t.Errorf("cluster and program were upgraded: %d changes, %v", result.Changes, err)
	}
	if now := w.pointer("applied"); now != applied {
		t.Error("cluster and program were upgraded: the node is another")
	}
	document["node"].(map[string]any)["maxPods"] = 42
	if _, err := w.reads(document, nil); err != nil {
		t.Fatal(err)
	}
	n := w.cluster.node1()
	info := n.Status.NodeInfo
	if info.KubeletVersion != "v1.34.4" || info.ContainerRuntimeVersion != "containerd://2.2.6" ||
		n.Status.Capacity.Pods().Value() != 42 {
		t.Errorf("with maxPods 42 it is %+v, %s pods", info, n.Status.Capacity.Pods())
	}
}

// copyArtifact offers the same bytes under another name.
func (w *world) copyArtifact(from, to string) {
	w.t.Helper()
	data, err := os.ReadFile(filepath.Join(w.store, from))
	to = filepath.Join(w.store, to)
	err = errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, data, 0o644))
	if err != nil {
		w.t.Fatal(err)
	}
}
