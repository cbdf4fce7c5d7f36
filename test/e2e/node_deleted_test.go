package e2e

import (
	"strings"
	"testing"
	"time"
)

// A Node object that somebody has deleted is a condition of its own; bootstrap and policy repair
// bring it back before the cluster gives up its pods. That an API server that is down is no missing
// Node is in TestBootWithoutAPIServer.
func TestNodeDeleted(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := machine(t, "deleted-1") // its policy is report
	serve(t, m)
	if _, err := bench.RunPod(ctx, "survivor", m.Name); err != nil {
		t.Fatal(err)
	}
	was := pod(t, "survivor")

	t.Run("policy report", func(t *testing.T) {
		if err := bench.DeleteNode(ctx, m.Name); err != nil {
			t.Fatal(err)
		}
		eventually(t, 10*time.Second, "the condition", func() bool {
			return status(t, m).condition("NodeRegistered") == "False/NodeMissing"
		})
		out, err := bench.Kubectl(ctx, "", "get", "node", m.Name, "--ignore-not-found")
		if err != nil || out != "" {
			t.Errorf("under policy report the Node is back: %s (%v)", out, err)
		}
	})

	t.Run("bootstrap", func(t *testing.T) {
		must(t, m, "bootstrap")
		if !ready(t, m) {
			t.Error("the Node is not Ready")
		}
		alive(t, "survivor", was)
		if got := status(t, m).condition("NodeRegistered"); !strings.HasPrefix(got, "True/") {
			t.Errorf("NodeRegistered is %q", got)
		}
	})

	t.Run("policy repair", func(t *testing.T) {
		edit(t, m, func(c map[string]any) { section(c, "agent")["driftPolicy"] = "repair" })
		eventually(t, 30*time.Second, "the new policy", func() bool {
			return applied(m, `"repair"`)
		})
		if err := bench.DeleteNode(ctx, m.Name); err != nil {
			t.Fatal(err)
		}
		eventually(t, 30*time.Second, "the Node", func() bool { return ready(t, m) })
		alive(t, "survivor", was)
	})
}
