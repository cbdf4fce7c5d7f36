package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/lab/component"
)

// secondServer is the address of the second cluster's API server.
const secondServer = "https://" + HostIP + ":6444"

// SecondCluster starts a second cluster: an API server on the same etcd, with its own key prefix
// and no machines. It returns the path of its administrator's kubeconfig, and a function that stops
// it.
func (l *Lab) SecondCluster(ctx context.Context) (kubeconfig string, stop func() error, err error) {
	const name = "kube-apiserver-2"
	dirs, err := l.build(ctx, ofSystem)
	if err != nil {
		return "", nil, err
	}
	pki := func(name string) string { return l.path("pki", name) }
	program := filepath.Join(dirs[component.KubernetesControlPlane], "kube-apiserver")
	if err := l.background(name, program,
		"--etcd-servers=http://127.0.0.1:23790", "--etcd-prefix=/second", "--bind-address="+HostIP,
		"--advertise-address="+HostIP, "--secure-port=6444", "--authorization-mode=RBAC",
		"--service-cluster-ip-range="+ServiceCIDR, "--client-ca-file="+pki("client-ca.crt"),
		"--tls-cert-file="+pki("apiserver.crt"), "--tls-private-key-file="+pki("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+pki("sa.key"),
		"--service-account-signing-key-file="+pki("sa.key"),
		"--enable-bootstrap-token-auth"); err != nil {
		return "", nil, err
	}
	stop = func() error {
		if p, ok := l.running(name); ok {
			return p.kill()
		}
		return nil
	}
	admin, err := l.kubeconfigOf("admin", secondServer)
	kubeconfig = l.path("second.kubeconfig")
	if err == nil {
		err = os.WriteFile(kubeconfig, admin, 0o600)
	}
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("cannot write the PKI: %w", err), stop())
	}
	err = until(ctx, time.Minute, "the second API server", func() error {
		_, err := l.second(ctx, "", "get", "--raw=/readyz") // once it is ready, it has its own roles
		if err == nil {
			_, err = l.second(ctx, "", "get", "namespace", "kube-system", "default")
		}
		return err
	})
	return kubeconfig, stop, err
}

// startSecond starts the second cluster for the resource provider, and gives its replicas a
// kubeconfig for it.
func (l *Lab) startSecond(ctx context.Context) error {
	kubeconfig, _, err := l.SecondCluster(ctx)
	if err != nil {
		return err
	}
	if err := prepareCluster(ctx, kubeconfig); err != nil {
		return err
	}
	provider, err := l.kubeconfigOf(providerUser, secondServer)
	if err != nil {
		return err
	}
	return l.BindKubeconfig(SecondClusterID, provider)
}

// second runs kubectl as the second cluster's administrator.
func (l *Lab) second(ctx context.Context, stdin string, args ...string) (string, error) {
	return l.Kubectl(ctx, stdin, append([]string{"--kubeconfig=" + l.path("second.kubeconfig")},
		args...)...)
}

// rotateProvider gives the provider new client certificates for both clusters.
func (l *Lab) rotateProvider() error {
	first, err := l.IssueClient(providerUser)
	if err != nil {
		return err
	}
	if err := l.BindKubeconfig(ClusterID, first); err != nil {
		return err
	}
	second := strings.ReplaceAll(string(first), APIServer, secondServer)
	return l.BindKubeconfig(SecondClusterID, []byte(second))
}

// secondBody returns the second cluster's registration, with subnets for its nodes.
func secondBody() object {
	return object{"location": "lab", "properties": object{
		"kubeconfig": "second", "rolloutPolicy": AllAtOnce(),
		"dnsServiceIP": DNSService, "podCidr": "10.250.0.0/16", "nodeCidrMask": 24}}
}

// gone reports whether a status means that the resource does not exist.
func gone(status int) bool {
	return status == http.StatusNoContent || status == http.StatusNotFound
}
