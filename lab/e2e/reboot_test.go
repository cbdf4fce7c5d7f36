package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/lab"
	"github.com/Azure/AKSFlexNode/lab/images"
)

// lingers is a pod with a preStop hook of 12 seconds, which writes to a directory on its node.
const lingers = `apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  nodeName: %[2]s
  terminationGracePeriodSeconds: 18
  containers:
  - name: hello
    image: "%[3]s"
    securityContext: {runAsUser: 0}
    lifecycle: {preStop: {exec: {command: [/hello, linger, 12s, /srv/times]}}}
    volumeMounts: [{name: srv, mountPath: /srv}]
  volumes: [{name: srv, hostPath: {path: /srv/lingers, type: DirectoryOrCreate}}]
`

// A reboot waits until a pod has terminated gracefully. The Node is Ready again, without drift and
// with the node's kernel parameters instead of the owner's in /etc/sysctl.conf, and kubelet's
// logind configuration is removed with the node.
func TestReboot(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := machine(t, "reboot-1")
	ownersSysctls(t, m)
	must(t, m, "bootstrap")
	openFiles(t, m)
	dropIn := filepath.Join(m.Root, "etc/systemd/logind.conf.d/99-kubelet.conf")
	eventually(t, "kubelet's drop-in and its delay", func() bool {
		_, err := os.Stat(dropIn)
		return err == nil && logindDelay(t, m) == "t 30000000"
	})
	manifest := fmt.Sprintf(lingers, "lingers", m.Name, images.Hello)
	if _, err := bench.StartPod(ctx, "lingers", manifest); err != nil {
		t.Fatal(err)
	}

	lost := filepath.Join(m.Root, "var/lib/cni/networks/aks-flex-node/192.0.2.1")
	err := errors.Join(os.MkdirAll(filepath.Dir(lost), 0o755), os.WriteFile(lost, nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := bench.Reboot(ctx, m); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(lost); !os.IsNotExist(err) {
		t.Errorf("the address of no pod is still taken: %v", err)
	}
	t.Logf("rebooted in %.0f s", time.Since(began).Seconds())
	times, err := os.ReadFile(filepath.Join(m.Root, "srv/lingers/times"))
	t.Logf("the hook wrote\n%s", times)
	if err != nil || !strings.HasPrefix(string(times), "begin ") ||
		!strings.Contains(string(times), "\nend ") {
		t.Errorf("the preStop hook did not end: %v", err)
	}
	eventually(t, "the Node", func() bool { return ready(t, m) })
	if _, err := bench.CheckPod(ctx, "rebooted", m.Name); err != nil {
		t.Error(err)
	}
	ended(t, "lingers")
	if out, code := flex(t, m, "drift"); code != 0 {
		t.Errorf("drift after a reboot: exit code %d\n%s", code, out)
	}
	if out, _ := inside(t, m, "sysctl", "-n", forwarding, "kernel.panic_on_oops"); out != "1\n1\n" {
		t.Errorf("after a boot they are %q", out)
	}
	if logindDelay(t, m) != "t 30000000" {
		t.Errorf("after the reboot logind waits for %s", logindDelay(t, m))
	}
	must(t, m, "unbootstrap", "--yes")
	if _, err := os.Stat(filepath.Dir(dropIn)); !os.IsNotExist(err) {
		t.Errorf("kubelet's drop-in for logind is left: %v", err)
	}
}

// ended fails the test unless kubelet has terminated a pod for the shutdown, and its container has
// exited with 0.
func ended(t *testing.T, name string) {
	t.Helper()
	const want = "Succeeded TerminationByKubelet 0"
	out, err := bench.Kubectl(t.Context(), "", "get", "pod", name, "-o", "jsonpath={.status.phase} "+
		`{.status.conditions[?(@.type=="DisruptionTarget")].reason} `+
		"{.status.containerStatuses[0].state.terminated.exitCode}")
	if err != nil || out != want {
		t.Errorf("pod %s is %q, want %q: %v", name, out, want, err)
	}
}

// logindDelay returns how long logind lets inhibitors delay a shutdown, in microseconds.
func logindDelay(t *testing.T, m lab.Machine) string {
	t.Helper()
	out, _ := inside(t, m, "busctl", "get-property", "org.freedesktop.login1",
		"/org/freedesktop/login1", "org.freedesktop.login1.Manager", "InhibitDelayMaxUSec")
	return strings.TrimSpace(out)
}

// openFiles fails the test if containerd, and so every pod, has a limit of open files other than
// the machine's services.
func openFiles(t *testing.T, m lab.Machine) {
	t.Helper()
	limit := func(args ...string) string {
		out, _ := inside(t, m, append([]string{"systemctl", "show", "--value", "-p"}, args...)...)
		return strings.TrimSpace(out)
	}
	got, want := limit("LimitNOFILE", "containerd"), limit("DefaultLimitNOFILE")
	if got != want || got == "infinity" {
		t.Errorf("containerd has a limit of %s open files, want %s", got, want)
	}
}
