package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/Azure/AKSFlexNode/lab"
)

// TestBehindProxy joins a machine that reaches only a proxy, which requires a password: it joins
// with an Azure identity, runs a pod, is checked by the daemon, and leaves. Artifacts, Azure, the
// API server and images are reached through the proxy, by the agent, kubelet, its credential
// plugin, containerd and node-problem-detector; the cluster's internal traffic bypasses it.
func TestBehindProxy(t *testing.T) {
	t.Parallel()
	const user, password = "edge", "canary$HOME-of-a-proxy"
	p := startProxy(t, user, password)
	m := bareMachine(t, "proxy-1")
	configureAs(t, m, lab.Newest, "servicePrincipal", func(c map[string]any) {
		section(c, "azure")["kubeletCredential"] = "token"
		at := "http://" + user + ":" + password + "@" + p.address
		c["proxy"] = map[string]any{"http": at, "https": at}
	})
	onlyProxy(t, m, p.address)
	before := snapshot(t.Context(), t, m)

	out, code := flex(t, m, "bootstrap")
	if code != 2 { // it reaches no Services
		t.Fatalf("bootstrap: exit code %d\n%s", code, out)
	}
	if _, err := bench.CheckPod(t.Context(), "pod-"+m.Name, m.Name); err != nil {
		t.Error(err)
	}
	want := []string{hostOf(lab.APIServer), hostOf(lab.MirrorURL), hostOf(lab.AzureURL),
		hostOf(lab.RegistryURL)}
	if diff := cmp.Diff(set(want...), p.hosts()); diff != "" {
		t.Errorf("asked for through the proxy (-want +got):\n%s", diff)
	}
	// node-problem-detector reports on the kernel in the Node's conditions.
	eventually(t, "the condition KernelDeadlock", func() bool {
		return condition(nodeOf(t, m.Name), "KernelDeadlock") == corev1.ConditionFalse
	})

	if out, code := inside(t, m, "systemctl", "enable", "--now", "aks-flex-node-agent"); code != 0 {
		t.Errorf("the daemon does not start: %s", out)
	}
	eventually(t, "the daemon's status", func() bool {
		text, code := inside(t, m, "cat", "/run/aks-flex-node/status.json")
		var status struct{ Ready string }
		return code == 0 && json.Unmarshal([]byte(text), &status) == nil && status.Ready == "True"
	})
	if out, code := flex(t, m, "drift"); code != 0 {
		t.Errorf("drift: exit code %d\n%s", code, out)
	}
	journal, _ := inside(t, m, "journalctl", "--no-pager")
	environment, _ := inside(t, m, "systemctl", "show", "containerd", "kubelet",
		"node-problem-detector")
	for what, text := range map[string]string{"the output": out, "the journal": journal,
		"what systemd shows": environment} {
		if strings.Contains(text, password) {
			t.Errorf("the proxy's password is in %s", what)
		}
	}

	must(t, m, "unbootstrap", "--yes")
	if out, err := bench.Kubectl(t.Context(), "", "get", "node", m.Name); err == nil {
		t.Errorf("the Node is left: %s", out)
	}
	same(t, before, snapshot(t.Context(), t, m))
}

// onlyProxy blocks a machine's connections to the host except those to the proxy, and checks that.
func onlyProxy(t *testing.T, m lab.Machine, proxy string) {
	t.Helper()
	host, port, err := net.SplitHostPort(proxy)
	if err != nil {
		t.Fatal(err)
	}
	if out, code := inside(t, m, "iptables", "-A", "OUTPUT", "-p", "tcp", "--syn", "-d", host,
		"!", "--dport", port, "-j", "REJECT", "--reject-with", "tcp-reset"); code != 0 {
		t.Fatal(out)
	}
	for _, url := range []string{lab.APIServer, lab.MirrorURL, lab.AzureURL, lab.RegistryURL} {
		const refused = 7 // curl(1)
		if out, code := inside(t, m, "curl", "-sS", "--noproxy", "*", url); code != refused {
			t.Fatalf("%s can be reached without the proxy: exit code %d, %s", url, code, out)
		}
	}
}

// proxy is an HTTP proxy that requires a password.
type proxy struct {
	address, authorization string

	mu   sync.Mutex
	seen map[string]bool
}

// startProxy starts a proxy that every machine can reach.
func startProxy(t *testing.T, user, password string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", lab.HostIP+":0")
	if err != nil {
		t.Fatal(err)
	}
	word := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	p := &proxy{
		address: listener.Addr().String(), authorization: "Basic " + word, seen: map[string]bool{},
	}
	server := httptest.NewUnstartedServer(p)
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	return p
}

// hosts returns the requested hosts.
func (p *proxy) hosts() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.seen)
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Proxy-Authorization") != p.authorization {
		w.Header().Set("Proxy-Authenticate", `Basic realm="lab"`)
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	p.mu.Lock()
	p.seen[r.Host] = true
	p.mu.Unlock()
	if r.Method == http.MethodConnect {
		tunnel(w, r.Host)
		return
	}
	(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.Header.Del("Proxy-Authorization")
	}}).ServeHTTP(w, r)
}

// tunnel connects a client to a host (RFC 9110, CONNECT).
func tunnel(w http.ResponseWriter, host string) {
	server, err := net.Dial("tcp", host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer server.Close()
	client, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	if _, err := fmt.Fprint(client, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	go func() {
		defer client.Close()
		_, _ = io.Copy(client, server) // until one of them ends
	}()
	_, _ = io.Copy(server, buffered)
}

// hostOf returns the host and port of a URL.
func hostOf(url string) string { return url[strings.Index(url, "//")+2:] }

func set(names ...string) map[string]bool {
	all := map[string]bool{}
	for _, n := range names {
		all[n] = true
	}
	return all
}
