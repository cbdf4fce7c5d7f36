package lab

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/prepare"
	"github.com/Azure/AKSFlexNode/lab/component"
	"github.com/Azure/AKSFlexNode/lab/images"
)

// Zone is the lab's own DNS zone, beside the cluster's, with the names of the lab's servers.
const Zone = "lab.flexnode.test"

const (
	dnsUser  = "coredns"
	dnsReady = "127.0.0.1:8455"
)

// corefile configures CoreDNS for the cluster's names and the lab's, and no others: the lab does
// not query outside servers. The arguments are the address, the cluster's kubeconfig, the zone, its
// hosts file and the address of the readiness endpoint.
const corefile = `cluster.local in-addr.arpa {
    bind %[1]s
    errors
    kubernetes {
        kubeconfig %[2]s
    }
}
%[3]s {
    bind %[1]s
    errors
    hosts %[4]s
}
. {
    bind %[1]s
    errors
    ready %[5]s
    template ANY ANY {
        rcode NXDOMAIN
    }
}
`

// startDNS starts CoreDNS, the DNS server of the cluster and the machines. It runs beside the
// control plane: an AKS cluster's runs on Azure's nodes, before the first flex node joins.
func (l *Lab) startDNS(dirs programs) error {
	hosts, file := l.path("zone.hosts"), l.path("Corefile")
	names := fmt.Sprintf("%[1]s api.%[2]s mirror.%[2]s registry.%[2]s\n", HostIP, Zone)
	text := fmt.Sprintf(corefile, HostIP, l.path(dnsUser+".kubeconfig"), Zone, hosts, dnsReady)
	for path, content := range map[string]string{hosts: names, file: text} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return fmt.Errorf("cannot configure CoreDNS: %w", err)
		}
	}
	return l.background("coredns", filepath.Join(dirs[component.CoreDNS], "coredns"), "-conf", file)
}

// waitDNS waits until CoreDNS has the cluster's names.
func (l *Lab) waitDNS(ctx context.Context) error {
	client := &http.Client{Timeout: 2 * time.Second}
	defer client.CloseIdleConnections()
	return until(ctx, time.Minute, "CoreDNS (see "+l.path("logs", "coredns.log")+")", func() error {
		response, err := client.Get("http://" + dnsReady + "/ready")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("it says %s", response.Status)
		}
		return nil
	})
}

// prepareCluster prepares the cluster as an operator does once, with `flexnode-rp cluster prepare`.
func prepareCluster(ctx context.Context, kubeconfig string) error {
	c, err := prepare.Open(kubeconfig, "")
	if err != nil {
		return err
	}
	r, err := c.Plan(ctx, prepare.Options{Provider: providerUser, KubeProxy: "auto"}, true)
	if err != nil {
		return err
	}
	return c.Apply(ctx, &r, true)
}

const dnsManifest = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "flexlab:%[1]s"}
rules:
- {apiGroups: [""], resources: [services, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "flexlab:%[1]s"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "flexlab:%[1]s"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "%[1]s"}]
---
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  clusterIP: %[2]s
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: kube-dns
  namespace: kube-system
  labels: {kubernetes.io/service-name: kube-dns}
addressType: IPv4
endpoints: [{addresses: ["%[3]s"], conditions: {ready: true}}]
ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
`

// proxyTools returns a directory with the programs that kube-proxy calls, and their libraries, from
// the distribution's packages. Without the names of protocols (netbase) nft lists them as numbers,
// and a restarted kube-proxy does not recognize its own rules and deletes them.
func (l *Lab) proxyTools(ctx context.Context) (string, error) {
	dir := filepath.Join(l.Cache, "proxy-tools-bookworm-2")
	install := func(work string) error {
		l.Say("installing the tools of kube-proxy")
		if _, err := run(ctx, "mmdebstrap", "--quiet", "--variant=extract", "--include=nftables,netbase",
			"bookworm", work); err != nil {
			return err
		}
		gconv, err := filepath.Glob(filepath.Join(work, "usr/lib/*/gconv"))
		if err != nil {
			return err
		}
		for _, unused := range append(gconv, filepath.Join(work, "usr/share")) {
			if err := os.RemoveAll(unused); err != nil {
				return err
			}
		}
		return nil
	}
	return dir, component.Once(ctx, dir, func() {}, install)
}

// proxyImage returns the image of kube-proxy in the cluster's version.
func (l *Lab) proxyImage(ctx context.Context, dirs programs) (images.Image, error) {
	tools, err := l.proxyTools(ctx)
	if err != nil {
		return images.Image{}, fmt.Errorf("cannot get the tools of kube-proxy: %w", err)
	}
	program := filepath.Join(dirs[component.KubernetesControlPlane], "kube-proxy")
	return images.KubeProxy(Newest.Kubernetes, program, tools), nil
}

// Exposed is a Service: its addresses, one of each family that the cluster has, and its node port.
type Exposed struct {
	IPs  []string
	Port string
}

const exposeManifest = `apiVersion: v1
kind: Service
metadata: {name: %[1]s}
spec:
  type: NodePort
  ipFamilyPolicy: PreferDualStack
  selector: {app: %[1]s}
  ports: [{port: 8080}]
`

// Expose creates a Service for a pod of RunPod, with the pod's name.
func (l *Lab) Expose(ctx context.Context, pod string) (Exposed, error) {
	if _, err := l.apply(ctx, fmt.Sprintf(exposeManifest, pod)); err != nil {
		return Exposed{}, err
	}
	out, err := l.Kubectl(ctx, "", "get", "service", pod, "-o",
		"jsonpath={.spec.ports[0].nodePort} {.spec.clusterIPs[*]}")
	fields := strings.Fields(out)
	if err == nil && len(fields) < 2 {
		err = fmt.Errorf("internal error: the Service %s is %q", pod, out)
	}
	if err != nil {
		return Exposed{}, err
	}
	return Exposed{IPs: fields[1:], Port: fields[0]}, nil
}

// CheckServices checks that a pod can resolve a name of the cluster and one of the lab's zone, and
// reach the API server through its Service.
func (l *Lab) CheckServices(ctx context.Context, pod string) error {
	for name, want := range map[string]string{
		"kubernetes.default": KubernetesService, "registry." + Zone: HostIP,
	} {
		got, err := l.Resolve(ctx, pod, name)
		if err == nil && got != want {
			err = fmt.Errorf("it is %q, want %s", got, want)
		}
		if err != nil {
			return fmt.Errorf("cannot resolve %s in pod %s: %w", name, pod, err)
		}
	}
	got, err := l.Fetch(ctx, pod, "https://kubernetes.default.svc/version")
	if err == nil && !strings.Contains(got, "v"+Newest.Kubernetes) {
		err = fmt.Errorf("cannot use Services in pod %s: the API server's says %q", pod, got)
	}
	return err
}

// Resolve resolves a name in a pod and returns the addresses. It retries, because a node that has
// just joined has Services only once its kube-proxy runs.
func (l *Lab) Resolve(ctx context.Context, pod, name string) (string, error) {
	got := ""
	err := until(ctx, time.Minute, "pod "+pod+" to resolve "+name, func() (err error) {
		got, err = l.Kubectl(ctx, "", "exec", pod, "--", "/hello", "resolve", name)
		return err
	})
	return strings.TrimSpace(got), err
}

// NodePort sends a request to a node's port from the host, like a client outside the cluster, and
// returns the body.
func (l *Lab) NodePort(ctx context.Context, m Machine, port string) (string, error) {
	// without the host's proxy, and over a new connection each time
	client := &http.Client{Timeout: 3 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true}}
	got := ""
	err := until(ctx, time.Minute, "port "+port+" of "+m.Name, func() error {
		response, err := client.Get("http://" + net.JoinHostPort(m.IP, port) + "/")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err == nil && response.StatusCode != http.StatusOK {
			err = fmt.Errorf("it says %s", response.Status)
		}
		got = string(text)
		return err
	})
	return got, err
}
