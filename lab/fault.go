package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
)

// StopAPIServer kills the cluster's API server: a graceful stop would wait for watches. Everything
// else keeps running.
func (l *Lab) StopAPIServer() error {
	p, ok := l.running("kube-apiserver")
	if !ok {
		return nil
	}
	return p.kill()
}

// StartAPIServer starts the API server. It restarts the controller manager, the scheduler and
// CoreDNS: after an outage they would retry only every half minute.
func (l *Lab) StartAPIServer(ctx context.Context) error {
	if _, up := l.running("kube-apiserver"); up {
		return nil
	}
	programs, err := l.build(ctx, ofSystem)
	if err != nil {
		return err
	}
	for _, name := range []string{"kube-scheduler", "kube-controller-manager", "coredns"} {
		if p, ok := l.running(name); ok {
			if err := p.kill(); err != nil {
				return err
			}
		}
	}
	return l.startControlPlane(ctx, programs)
}

// RotateCA gives the cluster a new certificate authority, as `az aks rotate-certs` does: the API
// server's certificate and new client certificates are signed by it, and pods receive it. Client
// certificates of the old one are still accepted. The simulated Azure and the resource provider get
// the new one.
func (l *Lab) RotateCA(ctx context.Context) error {
	if err := l.StopAPIServer(); err != nil {
		return err
	}
	if err := l.makeClusterPKI(); err != nil {
		return err
	}
	if err := l.StartAPIServer(ctx); err != nil {
		return err
	}
	if err := l.tellAzure(ctx); err != nil {
		return err
	}
	return l.tellProvider()
}

// tellAzure updates the cluster in the simulated Azure.
func (l *Lab) tellAzure(ctx context.Context) error {
	if !l.HasAzure() {
		return nil
	}
	cluster, err := l.cluster()
	if err != nil {
		return err
	}
	if _, err := l.AzureControl(ctx, http.MethodPut, "/clusters", cluster); err != nil {
		return err
	}
	world, err := l.world() // for a restart of azuresim
	if err != nil {
		return err
	}
	text, err := json.Marshal(world)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	return os.WriteFile(l.path("world.json"), text, 0o600)
}

// tellProvider gives the provider's replicas the current kubeconfig.
func (l *Lab) tellProvider() error {
	kubeconfig, err := os.ReadFile(l.path(providerUser + ".kubeconfig"))
	if err != nil {
		return fmt.Errorf("cannot read the PKI: %w", err)
	}
	return l.BindKubeconfig(ClusterID, kubeconfig)
}

// BindKubeconfig replaces the kubeconfig of a cluster in the replicas' settings. They notice the
// change.
func (l *Lab) BindKubeconfig(cluster string, kubeconfig []byte) error {
	for i := range maxReplicas {
		if _, err := os.Stat(l.replicaPath(i, "settings.json")); err != nil {
			continue
		}
		path := l.replicaKubeconfig(i, cluster)
		if err := os.WriteFile(path+".new", kubeconfig, 0o600); err != nil {
			return fmt.Errorf("cannot write the provider's kubeconfig: %w", err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			return fmt.Errorf("cannot write the provider's kubeconfig: %w", err)
		}
	}
	return nil
}

// ProviderKubeconfig returns the kubeconfig of the provider's user for a server.
func (l *Lab) ProviderKubeconfig(server string) ([]byte, error) {
	return l.kubeconfigOf(providerUser, server)
}

// DeleteNode deletes a Node, as `kubectl delete node` does, without the machine's knowledge.
func (l *Lab) DeleteNode(ctx context.Context, name string) error {
	_, err := l.Kubectl(ctx, "", "delete", "node", name)
	return err
}
