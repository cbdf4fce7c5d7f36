package stories

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/progress"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// service runs the agent as its own service does: unattended, with the log as its only output.
func (w *world) service(do func(context.Context, *change.Agent) error) error {
	return w.run(func(ctx context.Context, a *change.Agent) error {
		a.InService = true
		a.Show = func(e progress.Event) { progress.Log(a.Log, e) }
		return do(ctx, a)
	})
}

// warned counts the warnings of the log that have a text.
func (w *world) warned(text string) int {
	n := 0
	for line := range strings.Lines(w.log.String()) {
		if strings.Contains(line, "level=WARN") && strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// Warnings for a person at a terminal are also in the journal of the service, once.
func TestWarningsReachTheLog(t *testing.T) {
	w := newWorld(t)
	reconcile := func(ctx context.Context,
		a *change.Agent) error {
		return w.watcher(a).Reconcile(ctx).Err
	}
	once := func(text string) {
		t.Helper()
		if n := w.warned(text); n != 1 {
			t.Errorf("%d warnings say %q in\n%s", n, text, w.log.String())
		}
	}
	w.write("/etc/cni/net.d/05-cilium.conflist", `{"name": "cilium"}`)
	if err := w.service(reconcile); err != nil {
		t.Fatal(err)
	}
	once("already has a pod network (05-cilium.conflist); the node's own is not installed")

	w.refuseChangedKubelet()
	healthy := w.config
	w.config.Node.MaxPods = 42
	if err := w.service(reconcile); !rolledBack(err) {
		t.Fatalf("the error is %v; want that the change was rolled back", err)
	}
	once("rolling back")
	if log := w.log.String(); strings.Count(log, "configuration rejected") != 1 {
		t.Errorf("the rejection is not in the log once:\n%s", log)
	}
	w.config = healthy

	w.cluster.run("web")
	w.cluster.guarded = []string{"web"}
	err := w.service(func(ctx context.Context, a *change.Agent) error {
		options := transition.Options{DrainTimeout: 2 * time.Second}
		_, err := change.Unbootstrap(ctx, a, nil, change.Leave{Options: options})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	once("cannot drain the node: cannot evict these pods: default/web")
}
