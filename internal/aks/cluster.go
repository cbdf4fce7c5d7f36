// Package aks asks Azure Resource Manager about the managed cluster: the address and CA of its API
// server, and whether Azure's role assignments authorise in it.
package aks

import (
	"cmp"
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

// Cluster holds the properties of a cluster that its nodes need.
type Cluster struct {
	Server, CA string // the API server's URL and CA the PEM certificates that verify it
	Version    string // the control plane's, such as 1.34.4
	// Entra: the API server accepts Entra's tokens. AzureRBAC: Azure's roles authorise there.
	Entra, AzureRBAC bool
	// PodCIDRs are the pod networks, at most one per family; none if pods are in Azure's network.
	PodCIDRs     []string
	DNSServiceIP string // the address of the cluster's DNS service; "" if unknown to Azure
}

// Client reads one cluster.
type Client struct {
	Target     config.TargetCluster
	Credential azcore.TokenCredential
	Options    *arm.ClientOptions
}

// Cluster reads the cluster. The API server's address and CA come from a kubeconfig, whose other
// contents are dropped unread and never written.
func (c Client) Cluster(ctx context.Context) (Cluster, error) {
	clusters, group, name := c.clusters()
	got, err := clusters.Get(ctx, group, name, nil)
	if err != nil {
		return Cluster{}, c.explain(err, "read the cluster", config.RoleClusterUser)
	}
	var cluster Cluster
	if p := got.Properties; p != nil {
		cluster.Entra = p.AADProfile != nil
		cluster.AzureRBAC = cluster.Entra && value(p.AADProfile.EnableAzureRBAC)
		cluster.Version = value(p.CurrentKubernetesVersion)
		network := value(p.NetworkProfile)
		cluster.PodCIDRs, cluster.DNSServiceIP = podNetworks(network), value(network.DNSServiceIP)
	}
	user, err := clusters.ListClusterUserCredentials(ctx, group, name, nil)
	if err != nil { // for an identity that may only read the administrator's
		admin, adminErr := clusters.ListClusterAdminCredentials(ctx, group, name, nil)
		if adminErr == nil {
			user.CredentialResults, err = admin.CredentialResults, nil
		}
	}
	kubeconfig, err := c.first(user.CredentialResults, err, "read the address of the API server",
		config.RoleClusterUser)
	if err != nil {
		return Cluster{}, err
	}
	return cluster, cluster.address(kubeconfig)
}

// AdminKubeconfig returns the kubeconfig of the cluster's administrator.
func (c Client) AdminKubeconfig(ctx context.Context) (config.Secret, error) {
	clusters, group, name := c.clusters()
	admin, err := clusters.ListClusterAdminCredentials(ctx, group, name, nil)
	kubeconfig, err := c.first(admin.CredentialResults, err,
		"read the kubeconfig of the cluster's administrator (node.adminKubeconfig)",
		config.RoleClusterAdmin)
	return config.Secret(kubeconfig), err
}

// clusters returns the client, and the cluster's resource group and name.
func (c Client) clusters() (_ *armcontainerservice.ManagedClustersClient, group, name string) {
	subscription, group, name := c.Target.ID()
	client, _ := armcontainerservice.NewManagedClustersClient(subscription, c.Credential,
		c.Options) // fails only for options without an endpoint
	return client, group, name
}

func (c Client) explain(err error, doing, role string) error {
	return identity.Explain(err, identity.Need{Doing: doing, Role: role, Scope: c.Target.ResourceID})
}

func value[T any](p *T) T { return *cmp.Or(p, new(T)) }

// first returns the first kubeconfig of an answer. Some API versions encode them twice.
func (c Client) first(
	answer armcontainerservice.CredentialResults, err error, doing, role string,
) ([]byte, error) {
	if err != nil {
		return nil, c.explain(err, doing, role)
	}
	for _, k := range answer.Kubeconfigs {
		if k == nil {
			continue
		}
		if once, err := base64.StdEncoding.DecodeString(string(k.Value)); err == nil {
			return once, nil
		}
		return k.Value, nil
	}
	return nil, fmt.Errorf("cannot %s: Azure has no kubeconfig of the cluster", doing)
}

func podNetworks(p armcontainerservice.NetworkProfile) []string {
	listed := p.PodCidrs // in dual stack, podCidr is the first of them
	if len(listed) == 0 {
		listed = []*string{p.PodCidr}
	}
	var networks []string
	for _, text := range listed {
		if network, err := netip.ParsePrefix(value(text)); err == nil && !network.Addr().Is4In6() {
			networks = append(networks, network.Masked().String())
		}
	}
	return networks
}

func (c *Cluster) address(kubeconfig []byte) error {
	parsed, err := clientcmd.Load(kubeconfig)
	if err != nil {
		// the cause would quote it, and it may hold a secret
		return errors.New("cannot read the kubeconfig that Azure has sent")
	}
	current := cmp.Or(parsed.Contexts[parsed.CurrentContext], &clientcmdapi.Context{})
	cluster := parsed.Clusters[current.Cluster]
	if cluster == nil || cluster.Server == "" || len(cluster.CertificateAuthorityData) == 0 {
		return errors.New("cannot use the kubeconfig that Azure has sent: it names no server, or no CA")
	}
	c.Server, c.CA = cluster.Server, string(cluster.CertificateAuthorityData)
	return nil
}
