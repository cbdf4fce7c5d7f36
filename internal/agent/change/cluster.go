package change

import (
	"context"
	"errors"
	"fmt"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
)

// withAdmin adds the administrator's kubeconfig, the node's or else Azure's, if it is wanted.
func withAdmin(
	ctx context.Context, h *Home, asking config.Config, to *generation.Generation,
) (err error) {
	if !to.Config.Node.AdminKubeconfig {
		return nil
	}
	secrets := h.Saved.Secrets[to.ID]
	if secrets.AdminKubeconfig = inspect.Admin(h.Node); secrets.AdminKubeconfig == "" {
		if secrets.AdminKubeconfig, err = askAzure(h).AdminKubeconfig(ctx, asking); err != nil {
			return err
		}
	}
	h.Saved.Secrets[to.ID] = secrets
	return nil
}

// withDNS fills in the DNS service's address, from Azure or else the cluster. It never guesses: a
// node with a wrong address is Ready, but its pods resolve no names.
func withDNS(ctx context.Context, h *Home, t *Target, c config.Config) (config.Config, error) {
	if c.Node.Kubelet.DNSServiceIP != "" {
		return c, nil
	}
	if _, same := t.Locator.Proved(c); same && h.Saved.Live.Config.Node.Kubelet.DNSServiceIP != "" {
		return c.WithDNS(h.Saved.Live.Config.Node.Kubelet.DNSServiceIP)
	}
	address, err := dnsOfAzure(ctx, t, c)
	if err == nil {
		return c.WithDNS(address)
	}
	address, clusterErr := dnsOfCluster(ctx, h, t, c)
	if clusterErr == nil {
		return c.WithDNS(address)
	}
	return c, fmt.Errorf("cannot determine the address of the cluster's DNS service: set "+
		"node.kubelet.dnsServiceIP to it (kubectl get service --namespace kube-system kube-dns): %w",
		errors.Join(err, clusterErr))
}

func dnsOfAzure(ctx context.Context, t *Target, c config.Config) (string, error) {
	if c.Azure.AuthMode() == config.AuthBootstrapToken {
		return "", errors.New("a bootstrap token gives no access to Azure")
	}
	said, err := t.Locator.Ask(ctx, c)
	if err == nil && said.DNSServiceIP == "" {
		err = errors.New("its networkProfile in Azure does not include it")
	}
	if err != nil {
		return "", err
	}
	return said.DNSServiceIP, nil
}

// dnsOfCluster asks the cluster, which answers a node and a token that may join as one.
func dnsOfCluster(ctx context.Context, h *Home, t *Target, c config.Config) (string, error) {
	return inspect.Ask(ctx, h.Node, access.JoinClient, c, t.At,
		func(client *kube.Client, ctx context.Context) (string, error) {
			service, err := client.Service(ctx, "kube-system", "kube-dns")
			return service.Spec.ClusterIP, err
		})
}

// findAgain finds the API server again if its name no longer resolves, or its certificate is from
// another CA. The target becomes a change if it has moved and is the same cluster.
func findAgain(ctx context.Context, h *Home, t *Target) error {
	if !h.Saved.Joined() || t.moved {
		return nil
	}
	c := t.Input.Config
	fault := kube.Probe(ctx, kube.Target{
		Server: h.Saved.Bindings.Server, CA: []byte(h.Saved.Bindings.CA),
		Options: h.Options(c),
	})
	if !kube.Rebind(fault) {
		return nil
	}
	t.Locator.Again = true
	at, err := t.Locator.Locate(ctx, c)
	if err != nil {
		return fmt.Errorf("the API server has moved (%w), and its new address cannot be found: %w",
			fault, err)
	}
	b := h.Saved.Bindings
	if at.Server == b.Server && kube.Unite(at.CA, b.CA) == kube.Unite(b.CA, "") {
		if !c.Located() {
			return nil // Azure has nothing new; the gate and the conditions report what is wrong
		}
		e := inspect.NewEvidence(h.Node, c)
		e.Probe = health.Tried(fault)
		return health.Problem(health.Evaluate(health.Preflight, e))
	}
	t.moved, t.At = true, at
	return sameCluster(ctx, h, c, at)
}

// sameCluster refuses another cluster: kubelet's state must not be used with it. It compares the
// uid of the Service default/kubernetes, as address and CA may change.
func sameCluster(ctx context.Context, h *Home, c config.Config, at inspect.Cluster) error {
	if !h.Saved.Joined() || at == h.Saved.At() {
		return nil
	}
	known := h.Saved.Bindings.ClusterUID
	// The API server may not have the new CA yet.
	either := inspect.Cluster{Server: at.Server, CA: kube.Unite(at.CA, h.Saved.Bindings.CA)}
	uid, err := clusterUID(ctx, h, c, either)
	switch {
	case errors.Is(err, kube.ErrUnauthorized):
		return fmt.Errorf("cannot use %s: it does not accept this node's credential; if it is the same "+
			"cluster, run `aks-flex-node unbootstrap` and join with a new configuration", at.Server)
	case err != nil:
		return fmt.Errorf("cannot check whether %s is this node's cluster: %w", at.Server, err)
	case known == "" && at.Server != h.Saved.Bindings.Server &&
		!kube.SharesCA(at.CA, h.Saved.Bindings.CA),
		known != "" && uid != known:
		return fmt.Errorf("cannot join %s: this machine is a node of another cluster, %s; "+
			"run `aks-flex-node unbootstrap` first", at.Server, h.Saved.Bindings.Server)
	}
	return nil
}

func clusterUID(ctx context.Context, h *Home, c config.Config, at inspect.Cluster) (string, error) {
	return inspect.Ask(ctx, h.Node, access.Client, c, at, (*kube.Client).ClusterUID)
}
