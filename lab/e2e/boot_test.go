package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/lab"
)

// Neither a boot nor `systemctl enable --now` waits for the cluster. Without an API server, which
// differs from a missing Node, the machine boots, drift is reported, and the node is Ready again
// once the API server is back. The provider shows the Node's condition as unknown.
func TestBootWithoutAPIServer(t *testing.T) {
	fresh := bareMachine(t, "boot-2")
	configureAs(t, fresh, lab.Newest, "servicePrincipal")
	t.Run("Boot", func(t *testing.T) { bootsAlone(t, fresh) })
	t.Run("CARotation", func(t *testing.T) { rotatedCA(t, fresh) })
}

func bootsAlone(t *testing.T, fresh lab.Machine) {
	ctx := t.Context()
	m := machine(t, "boot-1")
	serve(t, m)
	before := kubelet(t, m)
	rp(t, 201, http.MethodPut, rpNode(m.Name), desired{"properties": desired{}})
	eventually(t, "the Node in its resource", func() bool {
		return strings.HasPrefix(shownReady(t, m.Name), "True/")
	})
	stopAPIServer(t)
	if got := status(t, m).condition("NodeRegistered"); !strings.HasPrefix(got, "Unknown/") {
		t.Errorf("NodeRegistered is %q", got)
	}
	if now := kubelet(t, m); now != before {
		t.Errorf("kubelet is %s, was %s", now, before)
	}
	if err := bench.StopMachine(ctx, m); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(m.Root, "var/lib/kubelet/config.yaml"), 0o666); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := bench.StartMachine(ctx, m); err != nil { // waits for `systemctl is-system-running`
		t.Fatal(err)
	}
	t.Logf("booted in %.1f s", time.Since(began).Seconds())
	up := []string{"systemctl", "is-active", "multi-user.target", "aks-flex-node-agent"}
	if out, code := inside(t, m, up...); code != 0 {
		t.Errorf("the machine is not up: %s", out)
	}
	eventually(t, "the drift in the status file", func() bool {
		return slices.ContainsFunc(statusFile(t, m).Drift, func(f finding) bool {
			return f.Key == "path:/var/lib/kubelet/config.yaml"
		})
	})
	enable(t, fresh)
	// No other command is refused while the daemon waits for the cluster.
	if out, code := flex(t, m, "drift"); code != 2 {
		t.Errorf("drift: exit code %d\n%s", code, out)
	}
	eventually(t, "Ready Unknown of a cluster that does not answer", func() bool {
		return shownReady(t, m.Name) == "Unknown/ClusterUnreachable"
	})
	startAPIServer(t)
	eventually(t, "the Node in its resource again", func() bool {
		return strings.HasPrefix(shownReady(t, m.Name), "True/")
	})
	rp(t, 200, http.MethodDelete, rpNode(m.Name), nil)
	eventually(t, "both Nodes", func() bool { return ready(t, m) && ready(t, fresh) })
	for _, node := range []lab.Machine{m, fresh} {
		eventually(t, "the status of "+node.Name, func() bool {
			return status(t, node).Ready == "True"
		})
	}
}
