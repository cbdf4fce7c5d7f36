package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/Azure/AKSFlexNode/internal/config"
)

// withDNS fills in the address of the cluster's DNS service that the owner left open: as Azure
// says, else as the cluster does. It is never guessed: a node whose pods ask a wrong address is
// Ready, and resolves no name.
func (h *home) withDNS(ctx context.Context, t *target, c config.Config) (config.Config, error) {
	if c.Node.Kubelet.DNSServiceIP != "" {
		return c, nil
	}
	if _, same := t.locator.proved(c); same && h.saved.Live.Config.Node.Kubelet.DNSServiceIP != "" {
		return c.WithDNS(h.saved.Live.Config.Node.Kubelet.DNSServiceIP)
	}
	var errs []error
	for _, ask := range []func(context.Context, *target, config.Config) (string, error){
		h.dnsOfAzure, h.dnsOfCluster,
	} {
		address, err := ask(ctx, t, c)
		if err == nil {
			return c.WithDNS(address)
		}
		errs = append(errs, err)
	}
	return c, fmt.Errorf("cannot tell the address of the cluster's DNS service, which pods ask for "+
		"names: set node.kubelet.dnsServiceIP to it (kubectl get service --namespace kube-system "+
		"kube-dns): %w", errors.Join(errs...))
}

// dnsOfAzure asks Azure, where it was not asked for the cluster yet and can be.
func (h *home) dnsOfAzure(ctx context.Context, t *target, c config.Config) (string, error) {
	if c.Azure.AuthMode() == config.AuthBootstrapToken {
		return "", errors.New("a bootstrap token cannot ask Azure")
	}
	if t.locator.asked == nil {
		found, err := h.askAzure(ctx, c)
		if err != nil {
			return "", err
		}
		t.locator.asked = &found
	}
	if t.locator.asked.DNSServiceIP == "" {
		return "", errors.New("its networkProfile in Azure does not say it")
	}
	return t.locator.asked.DNSServiceIP, nil
}

// dnsOfCluster asks the cluster, which answers to a node and to a token that may join as one.
func (h *home) dnsOfCluster(ctx context.Context, t *target, c config.Config) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	client, err := h.joinClient(ctx, c, t.at)
	if err != nil {
		return "", err
	}
	defer client.Close()
	service, err := client.Service(ctx, "kube-system", "kube-dns")
	return service.Spec.ClusterIP, err
}
