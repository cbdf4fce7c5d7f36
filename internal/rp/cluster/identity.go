package cluster

import (
	"context"
	"fmt"
	"strings"

	certificates "k8s.io/api/certificates/v1"

	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// reviewIdentity decides on a request of an Azure identity: a node's own may have the certificate
// of that node and of no other. Other callers' requests are left alone.
func (w *worker) reviewIdentity(
	ctx context.Context, s *session, csr *certificates.CertificateSigningRequest,
	a credential.Application,
) error {
	node, err := w.Store.Nodes.Get(ctx, w.key+"/"+a.Node) // the index may have another of its name
	if err != nil {
		return err
	}
	if node.Exists() && isNode(node.Value, csr.Spec.Username) {
		if a.Flaw != "" {
			return w.deny(ctx, s, csr, a, "", a.Flaw)
		}
		return w.approveIdentity(ctx, s, csr, a, node)
	}
	other, err := w.nodeOf(csr.Spec.Username)
	if err != nil || other == "" {
		return err
	}
	if node, err = w.Store.Nodes.Get(ctx, w.key+"/"+other); err != nil ||
		!isNode(node.Value, csr.Spec.Username) {
		return err
	}
	why := fmt.Sprintf("its sender is the identity of the node %s, not of %s", other, a.Node)
	return w.deny(ctx, s, csr, a, "", why)
}

// approveIdentity approves a request of a node's own identity. If a machine may have fetched the
// node's configuration, it was this one: then the URL is dead.
func (w *worker) approveIdentity(
	ctx context.Context, s *session, csr *certificates.CertificateSigningRequest,
	a credential.Application, node store.Row[flexnode.Node],
) error {
	if why, err := s.taken(a.Node); err != nil || why != "" {
		if err != nil {
			return err
		}
		return w.deny(ctx, s, csr, a, "", why)
	}
	if key := node.Value.Credential; key != "" {
		row, err := w.Store.Credentials.Get(ctx, key)
		if err != nil {
			return err
		}
		if row.Value.State == store.Live && w.Credentials.MayBeFetched(row.Value) {
			if err := w.Credentials.Consume(ctx, key, a, w.owner.Fence()); err != nil {
				return err
			}
		}
	}
	return w.approve(ctx, s, csr, "The request of this node's identity.")
}

// noteIssued records that a node's identity has its certificate.
func (w *worker) noteIssued(
	ctx context.Context, csr *certificates.CertificateSigningRequest, a credential.Application,
) error {
	node, err := w.Index.Node(w.key + "/" + a.Node)
	if err != nil || !isNode(node.Value, csr.Spec.Username) {
		return err
	}
	to := flexnode.Certificate{UID: node.Value.UID}
	if err := w.noteCertificate(ctx, csr, a.Node, to); err != nil || node.Value.Credential == "" {
		return err
	}
	return w.Credentials.Issued(ctx, node.Value.Credential, a.Name, w.owner.Fence())
}

// isNode reports whether a user of the API server is the identity of a node that joins with it: AKS
// uses an identity's object id as its user name.
func isNode(n flexnode.Node, user string) bool {
	if !n.Desired.KubernetesAuth.UseAzureAuth || user == "" {
		return false
	}
	if strings.EqualFold(n.PrincipalID(), user) {
		return true
	}
	for _, identity := range append(n.Former.All(), n.Identity) {
		kind, rest, _ := strings.Cut(identity, ":")
		id := rest[strings.LastIndex(rest, "/")+1:]
		if (kind == "oid" || kind == "app") && strings.EqualFold(id, user) {
			return true
		}
	}
	return false
}

// nodeOf returns the name of the node with a user's identity; "" if no node has it.
func (w *worker) nodeOf(user string) (string, error) {
	if user == "" {
		return "", nil
	}
	for _, key := range w.Index.Identified(w.key, user) {
		row, err := w.Index.Node(key)
		if err != nil {
			return "", err
		}
		if isNode(row.Value, user) {
			return flexnode.LastOf(key), nil
		}
	}
	return "", nil
}
