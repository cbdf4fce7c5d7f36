package stories

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/progress"
)

func TestJoinAndLeave(t *testing.T) {
	w := newWorld(t)
	before := w.tree()
	result, err := w.bootstrap()
	if err != nil {
		t.Fatal(err)
	}
	if !result.Ready || result.Changes == 0 {
		t.Errorf("result is %+v", result)
	}
	if _, err := os.Stat(filepath.Join(w.root, "/var/lib/kubelet/bootstrap-kubeconfig")); err == nil {
		t.Error("the bootstrap token is still on disk after the join")
	}
	joined, touches := w.tree(), w.touched()
	if result, err := w.bootstrap(); err != nil || result.Changes != 0 || w.touched() != touches {
		t.Errorf("the second bootstrap made %d changes and %d touches: %v",
			result.Changes, w.touched()-touches, err)
	}
	w.same(joined)
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	w.same(before)
	if w.cluster.has("edge-1") {
		t.Error("the Node is still in the cluster")
	}
}

// Every file of the agent that holds a secret is for root alone, and no secret is in the log.
func TestSecrets(t *testing.T) {
	w := newWorld(t)
	w.config = w.configuration(func(c map[string]any) {
		c["proxy"] = map[string]any{
			"https":   "http://user:canary-proxy@127.0.0.1:9",
			"noProxy": []string{"127.0.0.1"},
		}
	})
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	secrets := []string{"0123456789abcdef", "canary-proxy"}
	err := filepath.Walk(w.root, func(path string, info os.FileInfo, err error) error {
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		for _, secret := range secrets {
			if strings.Contains(string(data), secret) && info.Mode().Perm() != 0o600 {
				t.Errorf("%s has mode %04o and holds a secret", path, info.Mode().Perm())
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range secrets {
		if strings.Contains(w.log.String(), secret) {
			t.Error("a secret is in the log")
		}
	}
}

// Changed labels reach the Node, and removed ones leave it.
func TestRelabel(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.config = w.configuration(func(c map[string]any) {
		c["node"].(map[string]any)["labels"] = map[string]any{"example.com/floor": "2"}
	})
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	labels := w.cluster.nodes["edge-1"].Labels
	if labels["example.com/floor"] != "2" || labels["example.com/site"] != "" ||
		labels["kubernetes.azure.com/managed"] != "false" {
		t.Errorf("labels are %v", labels)
	}
}

// A cluster that allocates no pod subnet is reported as the cause, with the cure.
func TestNoPodSubnet(t *testing.T) {
	w := newWorld(t)
	w.cluster.noCIDR = true
	w.config.Agent.ReadyTimeout = "300ms"
	_, err := w.bootstrap()
	if err == nil || !strings.Contains(err.Error(), "cni.podCIDR") {
		t.Errorf("the error is %v; want a word on cni.podCIDR", err)
	}
}

// A second verb reports the one that is running.
func TestLocked(t *testing.T) {
	w := newWorld(t)
	ready := w.cluster.ready
	var second error
	w.cluster.ready = func(name string) bool {
		if second == nil {
			second = w.unbootstrap()
		}
		return ready(name)
	}
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	locked, ok := errors.AsType[*host.LockedError](second)
	if !ok || locked.Holder.Verb != "bootstrap" || locked.Holder.PID != os.Getpid() {
		t.Errorf("the second verb ended with %v", second)
	}
}

// A machine that may not delete its Node reports who can, gives the machine back nevertheless, and
// fails.
func TestNodeStays(t *testing.T) {
	w := newWorld(t)
	before := w.tree()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.cluster.keep = true
	err := w.unbootstrap()
	if err == nil || !strings.Contains(err.Error(), "kubectl delete node edge-1") {
		t.Errorf("the error is %v; want what the operator runs", err)
	}
	w.same(before)
}

// Without its ledger a machine is not touched; forced, only what is unchanged since is removed. The
// file for scripts shows that it is a node, even a damaged one.
func TestLostLedger(t *testing.T) {
	t.Run("lost", func(t *testing.T) { loseLedger(t, newWorld(t), "") })
	t.Run("damaged", func(t *testing.T) {
		loseLedger(t, newWorld(t), "{")
	})
}

func loseLedger(t *testing.T, w *world, joinState string) {
	t.Helper()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(w.root, "/var/lib/aks-flex-node/ledger.json")); err != nil {
		t.Fatal(err)
	}
	if joinState != "" {
		w.write("/var/lib/aks-flex-node/"+saved.JoinFile, joinState)
	}
	w.write("/etc/kubernetes/aks-flex-node-registration.env", "changed by the owner")
	joined := w.tree()
	if err := w.unbootstrap(); !errors.Is(err, saved.ErrLedgerLost) ||
		!strings.Contains(err.Error(), "--force") {
		t.Errorf("the error is %v; want the lost ledger and --force", err)
	}
	w.same(joined)
	if _, err := change.Unbootstrap(t.Context(), w.agent(), &w.config,
		change.Leave{Force: true}); err != nil {
		t.Fatal(err)
	}
	for path, stays := range map[string]bool{
		"/etc/kubernetes/aks-flex-node-registration.env": true, "/usr/local/bin/kubelet": false,
		"/etc/systemd/system/kubelet.service": false, "/opt/cni/bin/theirs": true,
		"/opt/aks-flex-node": false,
	} {
		if _, err := os.Lstat(filepath.Join(w.root, path)); (err == nil) != stays {
			t.Errorf("%s is there: %v, want %v", path, err == nil, stays)
		}
	}
}

// A pod network that another program has configured takes precedence: ours is not installed, which
// is reported, and theirs stays unchanged.
func TestForeignNetworkWins(t *testing.T) {
	w := newWorld(t)
	w.write("/etc/cni/net.d/05-cilium.conflist", `{"name": "cilium"}`)
	before := w.tree()
	a := w.agent()
	var warnings []string
	a.Show = func(e progress.Event) {
		if e.Kind == progress.Warning {
			warnings = append(warnings, e.Text)
		}
	}
	if _, err := change.Bootstrap(t.Context(), a, change.Input{Config: w.config}); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(warnings, "\n"); !strings.Contains(text, "05-cilium.conflist") {
		t.Errorf("warnings %q do not name the configuration that wins", text)
	}
	found, err := filepath.Glob(filepath.Join(w.root, "/etc/cni/net.d/*"))
	if err != nil || len(found) != 1 {
		t.Errorf("in /etc/cni/net.d: %v, %v", found, err)
	}
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	w.same(before)
}

// A bootstrap token that has expired since the join is not reported as a problem of a node that has
// its certificate.
func TestOldTokenIsNotBlamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.Agent.ReadyTimeout = "20s" // of the first bootstrap, too, also on a busy machine
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.cluster.token = "expired.long-ago"
	w.cluster.ready = func(string) bool { return false }
	w.config.Node.MaxPods = 42
	_, err := w.bootstrap()
	if err == nil || strings.Contains(err.Error(), "401") ||
		!strings.Contains(err.Error(), "pod network") {
		t.Errorf("the error is %v; want the pod network named, "+
			"which is what the Node says, and no token", err)
	}
}

// A CA in another layout than ours is used unchanged, and the second run does not see another CA.
func TestUntidyCA(t *testing.T) {
	w := newWorld(t)
	w.cluster.caPEM = []byte("# of the cluster\n" + strings.TrimSpace(string(w.cluster.caPEM)))
	w.config = w.configuration()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	const path = "/etc/kubernetes/certs/ca.crt"
	ca := w.read(path)
	w.harm()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if again := w.read(path); again != ca || ca != string(w.cluster.caPEM) {
		t.Errorf("the CA was\n%s\nand is\n%s", ca, again)
	}
}
