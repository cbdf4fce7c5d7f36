package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/Azure/AKSFlexNode/lab"
)

// An operator's drop-ins with which a node works until its configuration changes in a certain way.
const (
	// imagesDropIn makes kubelet fail to start with a high threshold of 75 %.
	imagesDropIn = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
imageGCLowThresholdPercent: 80
`
	// podsDropIn kills each kubelet with max 77 pods once it has had time to report Ready.
	podsDropIn = `[Service]
ExecStartPost=/bin/sh -c 'if grep -q "maxPods.*: 77" /var/lib/kubelet/config.yaml; then \
  touch /run/fragile; (sleep 4; kill -9 $MAINPID) & fi'
`
)

// fragile installs the drop-ins on a machine.
func fragile(t *testing.T, m lab.Machine) {
	t.Helper()
	for path, text := range map[string]string{
		"/etc/kubernetes/kubelet.conf.d/50-operator.conf":        imagesDropIn,
		"/etc/systemd/system/kubelet.service.d/50-operator.conf": podsDropIn,
	} {
		if err := bench.Write(m, path, 0o644, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
}

// A bad configuration for the running daemon is refused before any change, or rolled back once. The
// daemon keeps running, the Node is Ready, and the configuration is not retried.
func TestBadUpdate(t *testing.T) {
	t.Parallel()
	m := machine(t, "bad-1")
	fragile(t, m)
	serve(t, m)
	good, err := os.ReadFile(filepath.Join(m.Root, lab.ConfigPath))
	if err != nil {
		t.Fatal(err)
	}

	t.Run("more reserved than there is", func(t *testing.T) {
		before := kubelet(t, m)
		edit(t, m, func(c map[string]any) {
			reserved := map[string]any{"cpu": "900", "memory": "1Gi"}
			section(c, "node", "kubelet")["kubeReserved"] = reserved
		})
		// The daemon has read the file too, and may be running a change when bootstrap starts.
		eventually(t, "the refusal", func() bool {
			out, code := flex(t, m, "bootstrap")
			return code != 0 && strings.Contains(out, "cpu")
		})
		if now := kubelet(t, m); now != before {
			t.Errorf("kubelet is %s, was %s", now, before)
		}
		if err := bench.Write(m, lab.ConfigPath, 0o600, good); err != nil {
			t.Fatal(err)
		}
	})

	for _, tt := range []struct {
		name   string
		change func(map[string]any)
		says   string // in the rejection, from kubelet's own log
		kept   string // in kubelet's configuration afterwards
	}{
		{"kubelet does not start", func(c map[string]any) {
			section(c, "node", "kubelet")["imageGCHighThreshold"] = 75
			section(c, "node", "kubelet")["imageGCLowThreshold"] = 60
		}, "imageGCHighThresholdPercent", `"imageGCHighThresholdPercent": 85`},
		{"kubelet is Ready and dies", func(c map[string]any) {
			section(c, "node")["maxPods"] = 77
		}, "kubelet", `"maxPods": 110`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			were := len(status(t, m).Rejected)
			edit(t, m, func(c map[string]any) {
				section(c, "agent")["readyTimeout"] = "20s"
				tt.change(c)
			})
			var now report
			eventually(t, "the rejection", func() bool {
				now = status(t, m)
				return len(now.Rejected) > were && ready(t, m)
			})
			now.Rejected = now.Rejected[were:]
			said := now.rejection(t, tt.says)
			if said == "" || !strings.Contains(said, `"reason":"`) {
				t.Errorf("no rejection has a reason and tells of %q: %v", tt.says, now.Rejected)
			}
			t.Logf("%s", said)
			yaml, err := os.ReadFile(filepath.Join(m.Root, "var/lib/kubelet/config.yaml"))
			if err != nil || !strings.Contains(string(yaml), tt.kept) {
				t.Errorf("kubelet's configuration has no %s (%v):\n%s", tt.kept, err, yaml)
			}
			steady(t, m, 10*time.Second) // it does not die, and nothing is retried
			var n corev1.Node
			eventually(t, "the Node to be Ready", func() bool {
				n = nodeOf(t, m.Name)
				return condition(n, corev1.NodeReady) == corev1.ConditionTrue
			})
			if n.Spec.Unschedulable {
				t.Error("the Node is cordoned")
			}
			if out, code := inside(t, m, "systemctl", "is-active", "aks-flex-node-agent"); code != 0 {
				t.Errorf("the daemon is %s", out)
			}
			if err := bench.Write(m, lab.ConfigPath, 0o600, good); err != nil {
				t.Fatal(err)
			}
		})
	}
}
