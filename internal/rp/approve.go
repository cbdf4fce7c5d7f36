package rp

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrap "k8s.io/cluster-bootstrap/token/api"

	store "github.com/Azure/AKSFlexNode/internal/rp/oldstore"
)

// application is a request for a node's certificate, as far as a decision needs it.
type application struct {
	tokenID string
	node    string // the Node it is for, "" when it is no request for a node's client certificate
	keyHash string
	flaw    string // why it is no good, whoever asks
}

// readCSR takes a certificate request apart.
func readCSR(csr *certificates.CertificateSigningRequest) application {
	a := application{tokenID: strings.TrimPrefix(csr.Spec.Username, bootstrap.BootstrapUserPrefix)}
	block, _ := pem.Decode(csr.Spec.Request)
	if block == nil {
		a.flaw = "it holds no request"
		return a
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil {
		err = request.CheckSignature()
	}
	if err != nil {
		a.flaw = "its request cannot be read or is not signed with its key"
		return a
	}
	sum := sha256.Sum256(request.RawSubjectPublicKeyInfo)
	a.keyHash = hex.EncodeToString(sum[:])
	name, isNode := strings.CutPrefix(request.Subject.CommonName, "system:node:")
	allowed := []certificates.KeyUsage{certificates.UsageDigitalSignature, certificates.UsageKeyEncipherment, certificates.UsageClientAuth}
	switch {
	case !isNode || len(request.Subject.Organization) != 1 || request.Subject.Organization[0] != "system:nodes":
		a.flaw = "it is not for a node"
	case len(request.DNSNames)+len(request.IPAddresses)+len(request.EmailAddresses)+len(request.URIs) > 0:
		a.flaw = "it has alternative names"
	case slices.ContainsFunc(csr.Spec.Usages, func(u certificates.KeyUsage) bool { return !slices.Contains(allowed, u) }) || !slices.Contains(csr.Spec.Usages, certificates.UsageClientAuth):
		a.flaw = "its usages are not those of a node's client certificate"
	}
	a.node = name
	return a
}

// decide tells what becomes of an application by a token of a credential: whether it is approved, and if not, why.
func decide(a application, c store.Credential, known bool) (bool, string) {
	node := c.Node[strings.LastIndex(c.Node, "/")+1:]
	switch {
	case !known:
		return false, "its bootstrap token is not known to the resource provider"
	case c.State == store.Pending || c.State == store.Revoking:
		return false, "its bootstrap token has been revoked"
	case a.flaw != "":
		return false, a.flaw
	case a.node != node:
		return false, fmt.Sprintf("its bootstrap token is for the node %s, not for %s", node, a.node)
	case c.State == store.Consumed && c.KeyHash != a.keyHash:
		return false, "its bootstrap token was used by another machine"
	}
	return true, ""
}

// review decides on a certificate request of a holder of one of our tokens. The first that is valid consumes its token, which is written
// down before it is approved.
func (s *Server) review(ctx context.Context, target Target, cluster string, csr *certificates.CertificateSigningRequest) error {
	if csr.Spec.SignerName != certificates.KubeAPIServerClientKubeletSignerName || !slices.Contains(csr.Spec.Groups, TokenGroup) {
		return nil
	}
	a := readCSR(csr)
	issued := len(csr.Status.Certificate) > 0
	if decided(csr) && !issued {
		return nil
	}
	for range tries {
		row, known, err := s.byToken(ctx, cluster, a.tokenID)
		if err != nil {
			return err
		}
		if issued {
			return s.noteIssued(ctx, row, csr.Name)
		}
		approved, why := decide(a, row.Value, known)
		if !approved {
			s.Metrics.csr("denied")
			s.Audit.Warn("certificate request denied", "cluster", cluster, "csr", csr.Name, "node", a.node, "why", why)
			return s.answerCSR(ctx, target, csr, certificates.CertificateDenied, "FlexNodeDenied", "Denied: "+why+".")
		}
		if row.Value.State == store.Live {
			next := s.moved(row.Value, store.Consumed)
			next.KeyHash, next.CSR = a.keyHash, csr.Name
			txn := s.Store.Txn()
			s.Store.Credentials.Put(txn, row, next)
			_, err := s.commit(ctx, "credential consumed", txn)
			if errors.Is(err, store.ErrConflict) {
				continue
			}
			if err != nil {
				return err
			}
			s.Audit.Info("bootstrap token consumed", "cluster", cluster, "node", row.Value.Node, "csr", csr.Name)
			if err := s.Bundles.Delete(ctx, row.Key); err != nil { // its URL is dead by the state already; what is left goes with the credential
				s.Log.Warn("a consumed configuration is not deleted yet", "credential", row.Key, "error", err)
			}
		}
		s.Metrics.csr("approved")
		return s.answerCSR(ctx, target, csr, certificates.CertificateApproved, "FlexNodeApproved", "The first request with the bootstrap token of this node.")
	}
	return busy()
}

func decided(csr *certificates.CertificateSigningRequest) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificates.CertificateSigningRequestCondition) bool {
		return c.Type == certificates.CertificateApproved || c.Type == certificates.CertificateDenied || c.Type == certificates.CertificateFailed
	})
}

// byToken finds the credential that a token belongs to.
func (s *Server) byToken(ctx context.Context, cluster, tokenID string) (store.Row[store.Credential], bool, error) {
	owner, err := s.Store.Tokens.Get(ctx, cluster+"/"+tokenID)
	if err != nil || !owner.Exists() {
		return store.Row[store.Credential]{}, false, err
	}
	row, err := s.Store.Credentials.Get(ctx, owner.Value)
	return row, row.Exists(), err
}

// noteIssued writes down that the machine has its certificate; after a grace its token goes.
func (s *Server) noteIssued(ctx context.Context, row store.Row[store.Credential], csr string) error {
	if !row.Exists() || row.Value.State != store.Consumed || row.Value.Issued != nil || row.Value.CSR != csr {
		return nil
	}
	now := s.Now().UTC()
	next := row.Value
	next.Issued = &now
	txn := s.Store.Txn()
	s.Store.Credentials.Put(txn, row, next)
	_, err := s.commit(ctx, "certificate issued", txn)
	if errors.Is(err, store.ErrConflict) {
		return nil // the next look at the request writes it
	}
	return err
}

func (s *Server) answerCSR(ctx context.Context, target Target, csr *certificates.CertificateSigningRequest, kind certificates.RequestConditionType, reason, message string) error {
	answered := csr.DeepCopy()
	answered.Status.Conditions = append(answered.Status.Conditions, certificates.CertificateSigningRequestCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastUpdateTime: metav1.NewTime(s.Now()),
	})
	_, err := target.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, csr.Name, answered, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // somebody was faster
	}
	if err != nil {
		return fmt.Errorf("cannot answer the certificate request %s: %w", csr.Name, err)
	}
	s.did("CSR answered")
	return nil
}
