package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/lab"
)

// closed is a firewall that blocks connections to a machine.
const closed = `table inet closed {
	chain input {
		type filter hook input priority 0; policy drop;
		ct state established,related accept
		iif lo accept
		iifname "cni0" accept
	}
	chain forward {
		type filter hook forward priority 0;
		iifname "host0" ct state new drop
	}
}
`

// A machine that accepts no connections has logs, exec, metrics and port-forward if the API server
// uses a tunnel, and none of them otherwise. The API server restarts, so no other test runs at the
// same time.
func throughTunnel(t *testing.T, m lab.Machine) {
	ctx := t.Context()
	// without reading its logs: the API server would keep the connection
	if _, err := bench.RunPod(ctx, m.Name, m.Name); err != nil {
		t.Fatal(err)
	}
	if err := bench.Write(m, "/root/closed.nft", 0o600, []byte(closed)); err != nil {
		t.Fatal(err)
	}
	if out, code := inside(t, m, "nft", "-f", "/root/closed.nft"); code != 0 {
		t.Fatal(out)
	}
	short, end := context.WithTimeout(ctx, 3*time.Second)
	defer end()
	if got, err := bench.Kubectl(short, "", "logs", m.Name); err == nil {
		t.Errorf("without a tunnel the logs are %q", got)
	}
	if got, _ := flex(t, m, "doctor"); !strings.Contains(got, "no tunnel of the cluster") {
		t.Errorf("without a tunnel doctor says:\n%s", got)
	}
	t.Cleanup(func() {
		if err := bench.StopTunnel(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	if err := bench.StartTunnel(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := bench.CheckPod(ctx, m.Name, m.Name); err != nil {
		t.Errorf("logs and exec: %v", err)
	}
	got, err := bench.Kubectl(ctx, "", "get", "--raw", "/api/v1/nodes/"+m.Name+"/proxy/metrics")
	if err != nil || !strings.Contains(got, "kubelet_running_pods") {
		t.Errorf("metrics: %v\n%.200s", err, got)
	}
	if got := forwarded(t, m.Name); !strings.HasPrefix(got, "hello from "+m.Name) {
		t.Errorf("port-forward: %q", got)
	}
	if got, _ := flex(t, m, "doctor"); !strings.Contains(got, "use the cluster's tunnel") {
		t.Errorf("with a tunnel doctor says:\n%s", got)
	}
	if conn, err := net.DialTimeout("tcp", net.JoinHostPort(m.IP, "10250"), time.Second); err == nil {
		conn.Close()
		t.Error("port 10250 of the machine is open")
	}
}

// forwarded sends a request to a pod through `kubectl port-forward`.
func forwarded(t *testing.T, pod string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(bench.Dir, "kubectl"),
		"--kubeconfig="+bench.Kubeconfig(), "port-forward", "pod/"+pod, "18080:8080")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	for range 100 {
		answer, err := http.Get("http://127.0.0.1:18080/")
		if err == nil {
			text, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			return string(text)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return ""
}
