package change

import (
	"context"
	"errors"
	"fmt"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/config"
)

// withDNS fills in the address of the cluster's DNS service that the owner left open: as Azure
// says, else as the cluster does. It is never guessed: a node whose pods ask a wrong address is
// Ready, and resolves no name.
func withDNS(ctx context.Context, h *Home, t *Target, c config.Config) (config.Config, error) {
	if c.Node.Kubelet.DNSServiceIP != "" {
		return c, nil
	}
	if _, same := proved(t.Locator, c); same && h.Saved.Live.Config.Node.Kubelet.DNSServiceIP != "" {
		return c.WithDNS(h.Saved.Live.Config.Node.Kubelet.DNSServiceIP)
	}
	var errs []error
	address, err := dnsOfAzure(ctx, h, t, c)
	if err != nil {
		errs = append(errs, err)
		address, err = dnsOfCluster(ctx, h, t, c)
	}
	if err == nil {
		return c.WithDNS(address)
	}
	errs = append(errs, err)
	return c, fmt.Errorf("cannot tell the address of the cluster's DNS service, which pods ask for "+
		"names: set node.kubelet.dnsServiceIP to it (kubectl get service --namespace kube-system "+
		"kube-dns): %w", errors.Join(errs...))
}

// dnsOfAzure asks Azure, where it was not asked for the cluster yet and can be.
func dnsOfAzure(ctx context.Context, h *Home, t *Target, c config.Config) (string, error) {
	if c.Azure.AuthMode() == config.AuthBootstrapToken {
		return "", errors.New("a bootstrap token cannot ask Azure")
	}
	if t.Locator.asked == nil {
		found, err := askAzure(ctx, h, c)
		if err != nil {
			return "", err
		}
		t.Locator.asked = &found
	}
	if t.Locator.asked.DNSServiceIP == "" {
		return "", errors.New("its networkProfile in Azure does not say it")
	}
	return t.Locator.asked.DNSServiceIP, nil
}

// dnsOfCluster asks the cluster, which answers to a node and to a token that may join as one.
func dnsOfCluster(ctx context.Context, h *Home, t *Target, c config.Config) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, inspect.ClusterTimeout)
	defer cancel()
	client, err := inspect.JoinClient(ctx, h.Node, c, t.At)
	if err != nil {
		return "", err
	}
	defer client.Close()
	service, err := client.Service(ctx, "kube-system", "kube-dns")
	return service.Spec.ClusterIP, err
}
