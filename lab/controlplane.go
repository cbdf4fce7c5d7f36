package lab

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/lab/component"
	"github.com/Azure/AKSFlexNode/manifests"
)

// startControlPlane starts etcd, the API server, the controller manager, the scheduler and CoreDNS,
// and prepares the cluster as an operator would.
func (l *Lab) startControlPlane(ctx context.Context, dirs programs) error {
	kubernetes := dirs[component.KubernetesControlPlane]
	pki := func(name string) string { return l.path("pki", name) }
	const etcd = "http://127.0.0.1:23790"
	if err := l.background("etcd", filepath.Join(dirs[component.Etcd], "etcd"),
		"--data-dir="+l.path("etcd"), "--unsafe-no-fsync", "--listen-client-urls="+etcd,
		"--advertise-client-urls="+etcd,
		"--listen-peer-urls=http://127.0.0.1:23800",
		"--initial-advertise-peer-urls=http://127.0.0.1:23800",
		"--initial-cluster=default=http://127.0.0.1:23800", "--log-level=warn"); err != nil {
		return err
	}
	if err := l.startAPIServer(ctx, kubernetes, etcd); err != nil {
		return err
	}
	if err := l.background("kube-controller-manager",
		filepath.Join(kubernetes, "kube-controller-manager"),
		"--kubeconfig="+l.path("kube-controller-manager.kubeconfig"),
		"--controllers=*,bootstrapsigner,tokencleaner", "--leader-elect=false",
		"--bind-address=127.0.0.1", "--secure-port=10857", "--use-service-account-credentials",
		"--cluster-signing-cert-file="+pki("cluster-ca.crt"),
		"--cluster-signing-key-file="+pki("cluster-ca.key"),
		"--root-ca-file="+pki("cluster-ca.crt"),
		"--service-account-private-key-file="+pki("sa.key"), "--allocate-node-cidrs",
		"--cluster-cidr="+l.networks(PodCIDR, PodCIDR6),
		"--service-cluster-ip-range="+l.networks(ServiceCIDR, ServiceCIDR6)); err != nil {
		return err
	}
	if err := l.background("kube-scheduler", filepath.Join(kubernetes, "kube-scheduler"),
		"--kubeconfig="+l.path("kube-scheduler.kubeconfig"), "--leader-elect=false",
		"--bind-address=127.0.0.1", "--secure-port=10859"); err != nil {
		return err
	}
	if err := l.linkKubectl(dirs); err != nil {
		return err
	}
	if err := prepareCluster(ctx, l.Kubeconfig()); err != nil {
		return err
	}
	// Machines without a provider delete their own Node.
	more := manifests.Text("rbac-leave.yaml") + "---\n" +
		fmt.Sprintf(dnsManifest, dnsUser, DNSService, HostIP)
	if _, err := l.apply(ctx, more); err != nil {
		return err
	}
	if err := l.startDNS(dirs); err != nil {
		return err
	}
	if err := until(ctx, time.Minute, "the default service account", func() error {
		_, err := l.Kubectl(ctx, "", "get", "serviceaccount", "default")
		return err
	}); err != nil {
		return err
	}
	return l.waitDNS(ctx)
}

// startAPIServer starts the API server and waits until it is ready.
func (l *Lab) startAPIServer(ctx context.Context, programs, etcd string) error {
	pki := func(name string) string { return l.path("pki", name) }
	if err := os.WriteFile(l.path("audit.yaml"), []byte(auditPolicy), 0o600); err != nil {
		return fmt.Errorf("cannot write the audit policy: %w", err)
	}
	flags := append(append(l.azureFlags(), l.tunnelFlags()...),
		"--audit-policy-file="+l.path("audit.yaml"), "--audit-log-path="+l.AuditLog(),
		"--audit-log-mode=batch", "--audit-log-batch-max-wait=1s",
		"--etcd-servers="+etcd, "--bind-address="+HostIP, "--advertise-address="+HostIP,
		"--secure-port=6443",
		"--service-cluster-ip-range="+l.networks(ServiceCIDR, ServiceCIDR6),
		"--client-ca-file="+pki("client-ca.crt"),
		"--tls-cert-file="+pki("apiserver.crt"), "--tls-private-key-file="+pki("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+pki("sa.key"), "--service-account-signing-key-file="+pki("sa.key"),
		"--enable-bootstrap-token-auth", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged",
		"--kubelet-client-certificate="+pki("kubelet-client.crt"),
		"--kubelet-client-key="+pki("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP,Hostname",
		// webhooks and aggregated APIs: the host has routes to pods, and no kube-proxy
		"--enable-aggregator-routing",
		"--requestheader-client-ca-file="+pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file="+pki("front-proxy.crt"),
		"--proxy-client-key-file="+pki("front-proxy.key"))
	if err := l.background("kube-apiserver", filepath.Join(programs, "kube-apiserver"),
		flags...); err != nil {
		return err
	}
	return l.waitReady(ctx)
}

// auditPolicy logs the resource provider's requests to the API server.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: ["` + providerUser + `"]}
- {level: None}
`

// AuditLog returns the file of the resource provider's requests to the API server: events of
// audit.k8s.io/v1, one per line.
func (l *Lab) AuditLog() string { return l.path("logs", "audit.jsonl") }

// LogOf returns the file with the output of one of the lab's processes.
func (l *Lab) LogOf(process string) string { return l.path("logs", process+".log") }

// waitReady waits until the API server reports that it is ready.
func (l *Lab) waitReady(ctx context.Context) error {
	pool, err := l.trusted()
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: 2 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer client.CloseIdleConnections()
	return until(ctx, 2*time.Minute, "the API server (see "+l.path("logs", "kube-apiserver.log")+")",
		func() error {
			response, err := client.Get(APIServer + "/readyz")
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

// linkKubectl links kubectl into the lab's directory, where Kubectl finds it without the cache.
func (l *Lab) linkKubectl(dirs programs) error {
	target := filepath.Join(dirs[component.KubernetesNode], "kubectl")
	_ = os.Remove(l.path("kubectl")) // it exists if the lab ran before
	return os.Symlink(target, l.path("kubectl"))
}

// Kubectl runs kubectl as the administrator and returns what it printed.
func (l *Lab) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	var out, stderr strings.Builder
	cmd := l.kubectl(ctx, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &stderr
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err,
			strings.TrimSpace(stderr.String()))
	}
	return out.String(), nil
}

func (l *Lab) kubectl(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, l.path("kubectl"),
		append([]string{"--kubeconfig=" + l.Kubeconfig()}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+l.Dir)
	return cmd
}

func (l *Lab) apply(ctx context.Context, manifest string) (string, error) {
	return l.Kubectl(ctx, manifest, "apply", "-f", "-")
}
