package stories

import (
	"context"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/host"
)

// A join that is stopped between two changes - by Ctrl-C, by systemctl stop, by an upgrade of the
// package - continues with the next run: a unit file that it has written is its own.
func TestStoppedJoin(t *testing.T) {
	for _, last := range []string{
		"/sysctl.d/999-aks-flex-node.conf", "/containerd.service", "/kubelet.service",
	} {
		t.Run(last, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			before := w.tree()
			stopped := false
			err := w.run(func(ctx context.Context, a *change.Agent) error {
				ctx, stop := context.WithCancel(ctx)
				defer stop()
				machine := a.Machine.(*host.Host)
				touch := machine.Touch
				machine.Touch = func(what string) (func(), error) {
					after, err := touch(what)
					return func() {
						after()
						if strings.HasSuffix(what, last) {
							stopped = true
							stop()
						}
					}, err
				}
				_, err := change.Bootstrap(ctx, a, change.Input{Config: w.config, Origin: "file"})
				return err
			})
			if err == nil || !stopped {
				t.Fatalf("the join was not stopped: %v", err)
			}
			if _, err := w.bootstrap(); err != nil {
				t.Errorf("the next run: %v", err)
			}
			if err := w.unbootstrap(); err != nil {
				t.Fatal(err)
			}
			w.same(before)
		})
	}
}
