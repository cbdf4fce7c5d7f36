package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// A deleted Node is reported with its own condition; bootstrap and policy repair register it again
// before the cluster deletes its pods. TestBootWithoutAPIServer shows that an unreachable API
// server is no missing Node.
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
		eventually(t, "the condition", func() bool {
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

	// The API server refuses kubelet's report on the new Node until kubelet compares the running pods
	// with that Node, as with a slow store.
	t.Run("a report that comes late", func(t *testing.T) {
		if _, err := bench.Kubectl(ctx, refuseStatus(m.Name), "apply", "-f", "-"); err != nil {
			t.Fatal(err)
		}
		allow := func() {
			_, err := bench.Kubectl(context.Background(), refuseStatus(m.Name), "delete", "-f", "-",
				"--ignore-not-found")
			if err != nil {
				t.Error(err)
			}
		}
		t.Cleanup(allow)
		eventually(t, "the refusal of reports", func() bool {
			_, err := bench.Kubectl(ctx, "", "patch", "node", m.Name, "--subresource=status",
				"--dry-run=server", "--type=merge", "-p", `{"status":{"phase":"Running"}}`)
			return err != nil && strings.Contains(err.Error(), "denied")
		})
		if err := bench.DeleteNode(ctx, m.Name); err != nil {
			t.Fatal(err)
		}
		must(t, m, "drift", "--repair")
		eventually(t, "kubelet to begin with its pods", func() bool {
			out, _ := inside(t, m, "bash", "-c",
				"journalctl --no-pager _PID=$(systemctl show kubelet -P MainPID)")
			return strings.Contains(out, `"SyncLoop ADD" source="api"`)
		})
		allow()
		eventually(t, "the Node", func() bool { return ready(t, m) })
		alive(t, "survivor", was)
	})

	t.Run("policy repair", func(t *testing.T) {
		edit(t, m, func(c map[string]any) {
			// the cluster deletes pods of a missing Node 40 s after it has noticed that
			section(c, "agent")["driftPolicy"], section(c, "agent")["checkInterval"] = "repair", "10s"
		})
		eventually(t, "the new policy", func() bool {
			return applied(m, `"repair"`)
		})
		if err := bench.DeleteNode(ctx, m.Name); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the Node", func() bool { return ready(t, m) })
		alive(t, "survivor", was)
	})
}

// refuseStatus returns the manifest of a policy that refuses reports on a Node.
func refuseStatus(node string) string {
	return fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: refuse-status}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      operations: [UPDATE]
      resources: [nodes/status]
      resourceNames: [%s]
  validations: [{expression: "false"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: refuse-status}
spec: {policyName: refuse-status, validationActions: [Deny]}
`, node)
}
