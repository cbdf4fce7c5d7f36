package stories

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/agent/service"
	"github.com/Azure/AKSFlexNode/internal/daemon"
	"github.com/Azure/AKSFlexNode/internal/metrics"
)

// metered returns a change with which the service offers its metrics.
func metered(listen, textfile string) func(map[string]any) {
	return func(c map[string]any) {
		c["agent"].(map[string]any)["metrics"] = map[string]any{
			"listen": listen, "textfile": textfile,
		}
	}
}

// checked returns the live state of a service that has joined, was asked to check twice, and has
// seen a file drift in between.
func (w *world) checked(t *testing.T) (*change.Agent, *service.Live) {
	t.Helper()
	a := w.agent()
	live := service.NewLive("1.2.3")
	live.Attach(a)
	watcher := w.watcher(a)
	watcher.Live = live
	if err := watcher.Reconcile(t.Context()).Err; err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := watcher.Check(t.Context(), []string{"path:/exhausted"}); err != nil {
			t.Fatal(err)
		}
		live.Job(daemon.Job{Kind: "check", Ended: true})
		w.write("/etc/sysctl.d/999-aks-flex-node.conf", "# foreign\n")
	}
	return a, live
}

// get requests the metrics at an address, or at the socket.
func get(t *testing.T, network, address, path string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}}
	resp, err := client.Get("http://agent" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// freeAddress returns a loopback address that is not in use.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// The service reports its state and findings to root at its socket, and to Prometheus if the
// configuration says so. Leaving removes the file.
func TestTells(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.tree()
	address := freeAddress(t)
	w.config = w.configuration(metered(address, "/var/lib/metrics.prom"))
	a, live := w.checked(t)
	file := w.read("/var/lib/metrics.prom")
	for _, want := range []string{
		`aks_flex_node_build_info{version="1.2.3",`, "aks_flex_node_drifted 1\n",
		`aks_flex_node_drift_events_total{kind="path"} 1`,
		`aks_flex_node_condition{type="NodeReady",status="true",advice="false"} 1`,
		`aks_flex_node_transitions_total{kind="join",result="done"} 1`,
		"aks_flex_node_repair_budget_exhausted 1\n",
	} {
		if !strings.Contains(file, want) {
			t.Errorf("the file has no %s:\n%s", want, file)
		}
	}
	if code, text := get(t, "tcp", address, "/metrics"); code != 200 ||
		!strings.Contains(text, `aks_flex_node_checks_total{result="done"} 2`) {
		t.Errorf("over HTTP: %d\n%s", code, text)
	}
	if code, _ := get(t, "tcp", address, "/work"); code != 404 {
		t.Errorf("what is for root alone: %d", code)
	}
	ctx, stop := context.WithCancel(t.Context())
	told := make(chan error, 1)
	go func() { told <- live.Tell(ctx, a) }()
	socket := w.root + inspect.SocketFile
	status := w.status()
	for deadline := time.Now().Add(time.Minute); status.Service == nil; status = w.status() {
		if time.Now().After(deadline) {
			t.Fatal("the service does not answer")
		}
	}
	if is, err := os.Stat(socket); err != nil || is.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", is.Mode(), err)
	}
	if s := status.Service; s.Version != "1.2.3" || s.Job != "rest" || len(s.Events) != 1 ||
		s.Events[0].What != "found" || s.Exhausted[0] != "path:/exhausted" {
		t.Errorf("it tells %+v", s)
	}
	if code, _ := get(t, "unix", socket, "/metrics"); code != 200 {
		t.Errorf("the metrics at the socket: %d", code)
	}
	stop()
	if err := <-told; err != nil {
		t.Error(err)
	}
	live.Close()
	if status := w.status(); status.Service != nil {
		t.Errorf("no service runs, and %+v is reported", status.Service)
	}
	if _, err := w.drift(true); err != nil {
		t.Fatal(err)
	}
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	w.same(before)
}

// Failed checks are reported to Prometheus too, also by a service that has made no other ones.
func TestTellsFailedChecks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	address := freeAddress(t)
	w.config = w.configuration(metered(address, "/var/lib/metrics.prom"))
	a, former := w.checked(t)
	former.Close()
	w.write(saved.StateDir+"/"+saved.TransitionFile, "{")
	watcher := w.watcher(a)
	defer watcher.Live.Close()
	for range 2 {
		_, err := watcher.Check(t.Context(), nil)
		if err == nil {
			t.Fatal("the check has not failed")
		}
		watcher.Live.Job(daemon.Job{Kind: "check", Ended: true, Err: err})
	}
	_, served := get(t, "tcp", address, "/metrics")
	for from, text := range map[string]string{
		"the file": w.read("/var/lib/metrics.prom"), "the address": served,
	} {
		if !strings.Contains(text, `aks_flex_node_checks_total{result="failed"}`) ||
			!strings.Contains(text,
				`aks_flex_node_condition{type="NodeObserved",status="false",advice="false"} 1`) {
			t.Errorf("%s has no failed checks:\n%s", from, text)
		}
	}
}

// A metrics file that is not configured any more is removed, even if the service does not run.
func TestMetricsFileMoves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config = w.configuration(metered(freeAddress(t), "/var/lib/former.prom"))
	_, live := w.checked(t)
	live.Close()
	if !strings.Contains(w.read("/var/lib/former.prom"), "aks_flex_node_build_info") {
		t.Fatal("there are no metrics")
	}
	w.config = w.configuration(metered(freeAddress(t), "/var/lib/next.prom"))
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(w.root + "/var/lib/former.prom"); !os.IsNotExist(err) {
		t.Errorf("the former file: %v", err)
	}
}

// A previous metrics file that cannot be removed does not delay a change.
func TestMetricsFileStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const former = "/var/lib/former.prom"
	w.config = w.configuration(metered(freeAddress(t), former))
	_, live := w.checked(t)
	live.Close()
	if err := os.Remove(w.root + former); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(w.root+former, 0o600); err != nil {
		t.Fatal(err)
	}
	w.config = w.configuration(metered(freeAddress(t), "/var/lib/next.prom"))
	if _, err := w.bootstrap(); err != nil {
		t.Errorf("the change has failed: %v", err)
	}
	if !strings.Contains(w.log.String(), "former.prom") {
		t.Error("the file is not reported")
	}
}

// Every metric is in docs/reference/metrics.md, and every one there is offered.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	offered := map[string]bool{}
	w := newWorld(t)
	_, live := w.checked(t)
	for _, f := range live.Metrics() {
		offered[f.Name] = true
		if !strings.Contains(string(doc), "| `"+f.Name+"` |") {
			t.Errorf("%s is not in docs/reference/metrics.md", f.Name)
		}
		unit := strings.HasSuffix(f.Name, "_total")
		if (f.Type == metrics.Counter) != unit || f.Help == "" {
			t.Errorf("%s is a %s and says %q", f.Name, f.Type, f.Help)
		}
		for _, s := range f.Samples {
			if len(s.Labels)%2 != 0 {
				t.Errorf("%s has labels %q", f.Name, s.Labels)
			}
		}
	}
	for line := range strings.Lines(string(doc)) {
		name, found := strings.CutPrefix(line, "| `aks_flex_node_")
		if name, _, _ = strings.Cut(name, "`"); found && !offered["aks_flex_node_"+name] {
			t.Errorf("aks_flex_node_%s is documented and not offered", name)
		}
	}
}

// The interval of checks is that of the applied configuration.
func TestCheckInterval(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		every := func(interval string) func(map[string]any) {
			return func(c map[string]any) {
				c["agent"].(map[string]any)["checkInterval"] = interval
			}
		}
		s.edit(every("10m"))
		s.join()
		checks := func(during, step time.Duration) int {
			first := s.is().CheckedAt
			n, last := 0, first
			for end := time.Now().Add(during); time.Now().Before(end); s.sleep(step) {
				if at := s.is().CheckedAt; !at.Equal(last) {
					n, last = n+1, at
				}
			}
			return n
		}
		s.sleep(12 * time.Minute)
		if n := checks(time.Hour, time.Minute); n < 4 || n > 8 {
			t.Errorf("%d checks in an hour, each ten minutes", n)
		}
		s.edit(every("10s"))
		s.sleep(time.Minute)
		if n := checks(10*time.Minute, time.Second); n < 40 || n > 80 {
			t.Errorf("%d checks in ten minutes, each ten seconds", n)
		}
	})
}

// One kind of resource can be repaired, and another one not be checked, whatever the policy for the
// rest.
func TestDriftPolicies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config = w.configuration(policy("report"), func(c map[string]any) {
		c["agent"].(map[string]any)["driftPolicies"] = map[string]any{
			"unit": "repair", "sysctl": "off",
		}
	})
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.write("/proc/sys/net/ipv4/ip_forward", "0\n")
	w.write("/etc/sysctl.d/999-aks-flex-node.conf", "# foreign\n")
	if err := w.systemd.Stop(t.Context(), "kubelet.service"); err != nil {
		t.Fatal(err)
	}
	found, err := w.checkAndRepair()
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"unit:kubelet.service"}; !slices.Equal(found.Repair, want) {
		t.Errorf("repaired: %v, want %v", found.Repair, want)
	}
	if !slices.Contains(found.Drift, "path:/etc/sysctl.d/999-aks-flex-node.conf") ||
		slices.Contains(found.Drift, "sysctl:net.ipv4.ip_forward") {
		t.Errorf("drift: %v", found.Drift)
	}
	left := w.check()
	if slices.Contains(left.Drift, "unit:kubelet.service") || len(left.Drift) == 0 {
		t.Errorf("drift after the repair: %v", left.Drift)
	}
}
