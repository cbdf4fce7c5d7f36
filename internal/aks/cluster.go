// Package aks asks Azure Resource Manager about the managed cluster: where its API server is, how
// it is verified, and whether Azure's role assignments authorise in it.
package aks

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v6"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/identity"
)

// Cluster is what a node must know of its cluster.
type Cluster struct {
	// Server is the API server's URL and CA the PEM certificates that it is verified with.
	Server, CA string
	// Version is the control plane's, such as 1.34.4.
	Version string
	// Entra reports whether the API server accepts Entra's tokens, AzureRBAC whether Azure's role
	// assignments authorise there.
	Entra, AzureRBAC bool
	// PodCIDRs are the networks of the cluster's pods, at most one of each family; none where pods
	// have addresses of Azure's virtual network.
	PodCIDRs []string
	// DNSServiceIP is the address of the cluster's DNS service; "" when Azure does not say it.
	DNSServiceIP string
}

// Client asks about one cluster.
type Client struct {
	Target     config.TargetCluster
	Credential azcore.TokenCredential
	Options    *arm.ClientOptions
}

// Cluster reads the cluster. The API server's address and CA come from a kubeconfig; everything
// else in that is dropped unread and never written.
func (c Client) Cluster(ctx context.Context) (Cluster, error) {
	subscription, group, name := c.Target.ID()
	clusters, err := armcontainerservice.NewManagedClustersClient(subscription, c.Credential,
		c.Options)
	if err != nil {
		return Cluster{}, fmt.Errorf("cannot make a client of Resource Manager: %w", err)
	}
	got, err := clusters.Get(ctx, group, name, nil)
	if err != nil {
		return Cluster{}, identity.Explain(err,
			identity.Need{Doing: "read the cluster", Role: config.RoleClusterUser,
				Scope: c.Target.ResourceID})
	}
	var cluster Cluster
	if p := got.Properties; p != nil {
		if p.AADProfile != nil {
			cluster.Entra, cluster.AzureRBAC = true, p.AADProfile.EnableAzureRBAC != nil &&
				*p.AADProfile.EnableAzureRBAC
		}
		if p.CurrentKubernetesVersion != nil {
			cluster.Version = *p.CurrentKubernetesVersion
		}
		cluster.PodCIDRs = podNetworks(p.NetworkProfile)
		if n := p.NetworkProfile; n != nil && n.DNSServiceIP != nil {
			cluster.DNSServiceIP = *n.DNSServiceIP
		}
	}
	user, err := clusters.ListClusterUserCredentials(ctx, group, name, nil)
	kubeconfigs := user.Kubeconfigs
	if err != nil { // an identity that may only have the administrator's
		admin, adminErr := clusters.ListClusterAdminCredentials(ctx, group, name, nil)
		if adminErr != nil {
			return Cluster{}, identity.Explain(err,
				identity.Need{Doing: "read the address of the API server",
					Role: config.RoleClusterUser, Scope: c.Target.ResourceID})
		}
		kubeconfigs = admin.Kubeconfigs
	}
	for _, k := range kubeconfigs {
		if k != nil {
			return cluster, cluster.address(k.Value)
		}
	}
	return Cluster{}, errors.New("cannot read the address of the API server: Azure has no " +
		"kubeconfig of the cluster")
}

// AdminKubeconfig is the kubeconfig of the cluster's administrator.
func (c Client) AdminKubeconfig(ctx context.Context) (config.Secret, error) {
	subscription, group, name := c.Target.ID()
	clusters, err := armcontainerservice.NewManagedClustersClient(subscription, c.Credential,
		c.Options)
	if err != nil {
		return "", fmt.Errorf("cannot make a client of Resource Manager: %w", err)
	}
	admin, err := clusters.ListClusterAdminCredentials(ctx, group, name, nil)
	if err != nil {
		return "", identity.Explain(err, identity.Need{
			Doing: "read the kubeconfig of the cluster's administrator (node.adminKubeconfig)",
			Role:  config.RoleClusterAdmin, Scope: c.Target.ResourceID})
	}
	for _, k := range admin.Kubeconfigs {
		if k != nil {
			return config.Secret(decoded(k.Value)), nil
		}
	}
	return "", errors.New("cannot read the kubeconfig of the cluster's administrator: Azure has none")
}

// decoded is a kubeconfig, which some API versions encode twice.
func decoded(kubeconfig []byte) []byte {
	if once, err := base64.StdEncoding.DecodeString(string(kubeconfig)); err == nil {
		return once
	}
	return kubeconfig
}

// podNetworks are the networks of a cluster's pods, in their usual spelling.
func podNetworks(p *armcontainerservice.NetworkProfile) []string {
	if p == nil {
		return nil
	}
	listed := p.PodCidrs // of dual stack too, and then podCidr is its first
	if len(listed) == 0 {
		listed = []*string{p.PodCidr}
	}
	var networks []string
	for _, text := range listed {
		if text == nil {
			continue
		}
		network, err := netip.ParsePrefix(*text)
		if err == nil && !network.Addr().Is4In6() {
			networks = append(networks, network.Masked().String())
		}
	}
	return networks
}

// address takes server and CA out of a kubeconfig.
func (c *Cluster) address(kubeconfig []byte) error {
	parsed, err := clientcmd.Load(decoded(kubeconfig))
	if err != nil {
		// the cause would quote it, and it may hold a secret
		return errors.New("cannot read the kubeconfig that Azure has sent")
	}
	current := parsed.Contexts[parsed.CurrentContext]
	var cluster *clientcmdapi.Cluster
	if current != nil {
		cluster = parsed.Clusters[current.Cluster]
	}
	if cluster == nil || cluster.Server == "" || len(cluster.CertificateAuthorityData) == 0 {
		return errors.New("cannot use the kubeconfig that Azure has sent: it names no server, " +
			"or no CA")
	}
	c.Server, c.CA = cluster.Server, string(cluster.CertificateAuthorityData)
	return nil
}
