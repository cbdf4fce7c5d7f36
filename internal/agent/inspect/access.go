package inspect

import (
	"context"
	"fmt"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/kube"
)

// Allowed makes sure that the cluster authorises the configured identity to join.
func Allowed(ctx context.Context, h *Node, c config.Config, at Cluster) error {
	arc := c.Azure.AuthMode() == config.AuthArc && !EnrolledBefore(h)
	if c.Azure.BootstrapToken != nil || arc || Credentialed(h, c) && !c.Azure.ShowsToken() {
		return nil
	}
	token, err := JoinToken(ctx, h, c)
	if err != nil {
		return err
	}
	ok, err := Authorised(ctx, h, c, at, token)
	if err != nil || ok {
		return err
	}
	_, role := RequiredAccess(c)
	return fmt.Errorf("cannot join the cluster: it does not authorise the configured identity, which "+
		"needs %s; a role assignment takes some minutes to have an effect", role)
}

// Authorised tells whether the cluster lets the identity of a token do what kubelet must.
func Authorised(
	ctx context.Context, h *Node, c config.Config, at Cluster, token string,
) (bool, error) {
	client, err := kube.FromToken(at.Server, []byte(at.CA), token, Options(h.Env, c))
	if err != nil {
		return false, err
	}
	defer client.Close()
	access, _ := RequiredAccess(c)
	ok, _, err := client.May(ctx, access)
	return ok, err
}

// RequiredAccess is what kubelet's identity must be allowed in the cluster, and the role that
// allows it.
func RequiredAccess(c config.Config) (kube.Access, string) {
	if c.Azure.ShowsToken() {
		role := fmt.Sprintf("the role %q on %s",
			config.RoleRBACClusterAdmin, c.Azure.TargetCluster.ResourceID)
		return kube.Access{Verb: "create", Resource: "nodes"}, role
	}
	return kube.Access{
			Verb: "create", Group: "certificates.k8s.io", Resource: "certificatesigningrequests",
		}, "the ClusterRole system:node-bootstrapper in the cluster (docs/security.md has the " +
			"manifest), or azure.kubeletCredential token with roles of Azure"
}

// Trusted makes sure that only root can change the program that root and kubelet run.
func Trusted(h *Node) error { return h.TrustedFile(h.Program) }
