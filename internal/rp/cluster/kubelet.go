package cluster

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificates "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// clientCA is the ConfigMap of kube-system in which an API server publishes the CA of its clients'
// certificates; clientCAFile is its key.
const clientCA, clientCAFile = "extension-apiserver-authentication", "client-ca-file"

// ProvesKubelet returns an error unless a certificate is one of the kubelet of a node, signed by
// the client CA of the cluster, for a request that this provider has approved. It returns one if
// the cluster lists others: a restored store may lack a revocation. A cluster keeps requests for an
// hour. It asks the cluster, so this replica must reach clusters.
func (m *Manager) ProvesKubelet(
	ctx context.Context, c flexnode.Cluster, node string, leaf *x509.Certificate,
) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	connection, err := m.connect(ctx, c)
	if err != nil {
		return err
	}
	if err := connection.signedForClient(ctx, leaf); err != nil {
		return err
	}
	if leaf.Subject.CommonName != "system:node:"+node ||
		!slices.Equal(leaf.Subject.Organization, []string{"system:nodes"}) {
		return fmt.Errorf("the certificate is of %q, not of the node", leaf.Subject.CommonName)
	}
	listed, _, err := connection.listed(ctx)
	if ids, has := listed[node]; has && !strings.Contains(ids, flexnode.CertificateID(leaf.Raw)) {
		return errors.New("the cluster refuses writes with the certificate")
	}
	return cmp.Or(err, connection.approvedByUs(ctx, leaf))
}

// signedForClient returns an error unless the client CA of the cluster has signed a certificate.
func (c *Connection) signedForClient(ctx context.Context, leaf *x509.Certificate) error {
	published, err := c.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, clientCA,
		metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("cannot ask the cluster for its client CA (ConfigMap kube-system/%s; the "+
			"operator of the cluster allows it with rbac-provider.yaml): %w", clientCA, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(published.Data[clientCAFile])) {
		return errors.New("the cluster publishes no client CA")
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err
}

// approvedByUs returns an error unless this provider has approved the request of a certificate.
func (c *Connection) approvedByUs(ctx context.Context, leaf *x509.Certificate) error {
	ours := func(c certificates.CertificateSigningRequestCondition) bool {
		return c.Type == certificates.CertificateApproved && c.Reason == approvedReason
	}
	page := metav1.ListOptions{Limit: pageItems, FieldSelector: "spec.signerName=" +
		certificates.KubeAPIServerClientKubeletSignerName}
	for {
		list, err := c.Client.CertificatesV1().CertificateSigningRequests().List(ctx, page)
		if err != nil {
			return fmt.Errorf("cannot ask the cluster for its certificate requests: %w", err)
		}
		for _, csr := range list.Items {
			block, _ := pem.Decode(csr.Status.Certificate)
			if block != nil && slices.Equal(block.Bytes, leaf.Raw) &&
				slices.ContainsFunc(csr.Status.Conditions, ours) {
				return nil
			}
		}
		if page.Continue = list.Continue; page.Continue == "" {
			return errors.New(
				"the cluster knows no request for the certificate that the provider has approved")
		}
	}
}
