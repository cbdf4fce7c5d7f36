package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// reviewNamed decides on the certificate request with a name, in its present state.
func (w *worker) reviewNamed(ctx context.Context, name string) (time.Time, error) {
	s, err := w.use()
	if err != nil {
		return noTime, err
	}
	for _, requests := range s.requests {
		known, there, err := requests.GetByKey(name)
		if err != nil {
			return noTime, err
		}
		if !there {
			continue
		}
		csr, ok := known.(*certificates.CertificateSigningRequest)
		switch {
		case !ok:
			return noTime, fmt.Errorf("internal error: %T is no certificate request", known)
		case !concerns(csr) || s.isAnswered(csr):
			return noTime, nil
		case !w.reviews[answersOf(csr).approved].AllowN(time.Now(), 1):
			return time.Now().Add(reviewPause), nil
		case csr.Spec.SignerName == certificates.KubeletServingSignerName:
			return w.reviewServing(ctx, s, csr)
		}
		return noTime, w.review(ctx, s, csr)
	}
	return noTime, nil
}

// review decides on a certificate request, if that is the provider's to decide, and records its
// effect on the credential that it was made with.
func (w *worker) review(
	ctx context.Context, s *session, csr *certificates.CertificateSigningRequest,
) error {
	a, status := readCSR(csr), answersOf(csr)
	_, byToken := tokenOf(csr)
	_, byNode := nodeIn(csr)
	switch {
	case byNode:
		return w.reviewRenewal(ctx, s, csr, a)
	case !byToken && status.issued:
		return w.noteIssued(ctx, csr, a)
	case !byToken && status.approved:
		return nil
	case !byToken:
		return w.reviewIdentity(ctx, s, csr, a)
	case status.approved || status.issued:
		return w.noteApproved(ctx, csr, a)
	}
	return w.reviewToken(ctx, s, csr, a)
}

// noteApproved records that some approver has approved a request: its token is used up.
func (w *worker) noteApproved(
	ctx context.Context, csr *certificates.CertificateSigningRequest, a credential.Application,
) error {
	row, err := w.Credentials.ByToken(ctx, w.key, a.TokenID)
	if err != nil || !row.Exists() {
		return err
	}
	switch {
	case row.Value.State == store.Pending || row.Value.State == store.Live:
		w.Audit.Warn("certificate request approved by another approver", "cluster", w.key,
			"csr", a.Name, "node", a.Node, "credential", row.Key)
		if err := w.Credentials.Consume(ctx, row.Key, a, w.owner.Fence()); err != nil {
			return err
		}
	case row.Value.State == store.Consumed && row.Value.KeyHash != a.KeyHash:
		w.Audit.Warn("a used bootstrap token has been approved again by another approver",
			"cluster", w.key, "csr", a.Name, "node", a.Node, "credential", row.Key)
	}
	if !answersOf(csr).issued {
		return nil
	}
	to := flexnode.Certificate{}
	if row.Value.KeyHash == a.KeyHash {
		to.UID, to.Enrolment = row.Value.UID, flexnode.LastOf(row.Key)
	}
	if err := w.noteCertificate(ctx, csr, a.Node, to); err != nil {
		return err
	}
	return w.Credentials.Issued(ctx, row.Key, a.Name, w.owner.Fence())
}

// reviewToken decides on a request with one of the provider's tokens. The first valid request
// consumes the token, which is written before it is approved.
func (w *worker) reviewToken(
	ctx context.Context, s *session, csr *certificates.CertificateSigningRequest,
	a credential.Application,
) error {
	row, err := w.Credentials.ByToken(ctx, w.key, a.TokenID)
	if err != nil {
		return err
	}
	if !row.Exists() && !slices.Contains(csr.Spec.Groups, w.tokenGroup()) {
		return nil // for other approvers
	}
	approved, why := credential.Decide(a, row.Value, row.Exists())
	if approved && row.Value.State == store.Live {
		if why, err := s.taken(a.Node); err != nil || why != "" {
			if err != nil {
				return err
			}
			return w.deny(ctx, s, csr, a, row.Key, why)
		}
		if err := w.Credentials.Consume(ctx, row.Key, a, w.owner.Fence()); err != nil {
			return err
		}
		// Another request may have been faster, or the node was deleted.
		if row, err = w.Credentials.ByToken(ctx, w.key, a.TokenID); err != nil {
			return err
		}
		if approved, why = credential.Decide(a, row.Value, row.Exists()); approved &&
			row.Value.State != store.Consumed {
			return fmt.Errorf("internal error: the credential %s was not consumed", row.Key)
		}
	}
	if !approved {
		return w.deny(ctx, s, csr, a, row.Key, why)
	}
	return w.approve(ctx, s, csr, "This is the first request with the bootstrap token of the node.")
}

// taken returns the reason that a machine cannot have the name of a Node: the present Node of that
// name is no flex node, or is another installation's, and the machine's certificate would be for
// it.
func (s *session) taken(name string) (why string, err error) {
	if !s.nodesKnown.Load() {
		return "", errors.New("the Nodes of the cluster are not known yet")
	}
	if node := s.node(name); node != nil && node.other() {
		why = "the cluster has a Node of this name that is not a flex node of this provider"
	}
	return why, nil
}

// approvedReason is the reason of the provider's own approvals.
const approvedReason = "FlexNodeApproved"

func (w *worker) approve(
	ctx context.Context, s *session, csr *certificates.CertificateSigningRequest, message string,
) error {
	w.count(Approved)
	return w.answer(ctx, s, csr, certificates.CertificateApproved, approvedReason, message)
}

// deny denies a request, and records the reason at the credential that it was made with. key is ""
// without a credential.
func (w *worker) deny(
	ctx context.Context, s *session, csr *certificates.CertificateSigningRequest,
	a credential.Application, key, why string,
) error {
	if key == "" { // the audit line has no credential that names the cluster
		a.Node = w.key + "/" + a.Node
	}
	if err := w.Credentials.Denied(ctx, key, a, why, w.owner.Fence()); err != nil {
		return err
	}
	w.count(Denied)
	return w.answer(ctx, s, csr, certificates.CertificateDenied, "FlexNodeDenied",
		"Denied: "+why+".")
}

// answer adds a condition to a request.
func (w *worker) answer(
	ctx context.Context, s *session, csr *certificates.CertificateSigningRequest,
	kind certificates.RequestConditionType, reason, message string,
) error {
	if !w.owner.Valid() {
		return errNotOwner
	}
	ctx, cancel := context.WithTimeout(ctx, effectTimeout)
	defer cancel()
	answered := csr.DeepCopy()
	answered.Status.Conditions = append(answered.Status.Conditions,
		certificates.CertificateSigningRequestCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message,
			LastUpdateTime: metav1.NewTime(time.Now()),
		})
	_, err := s.connection.Client.CertificatesV1().CertificateSigningRequests().
		UpdateApproval(ctx, csr.Name, answered, metav1.UpdateOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil // the watch sees the change, and the request is reviewed again
	case err != nil:
		return fmt.Errorf("cannot answer the certificate request %s: %w", csr.Name, err)
	}
	s.noteAnswered(csr.UID)
	w.did("certificate request answered")
	return nil
}

// noteAnswered remembers an answered request. A hostile API server could show it without the answer
// again and again.
func (s *session) noteAnswered(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answered == nil || len(s.answered) >= maxRequests {
		s.answered = map[types.UID]bool{}
	}
	s.answered[uid] = uid != ""
}

// isAnswered reports whether a request needs no review: it is denied, has its serving certificate
// approved, or was answered in this session. The approval of a client certificate needs a record.
func (s *session) isAnswered(csr *certificates.CertificateSigningRequest) bool {
	status := answersOf(csr)
	if status.approved || status.issued {
		return csr.Spec.SignerName == certificates.KubeletServingSignerName || status.denied
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return status.denied || s.answered[csr.UID]
}

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
	why := fmt.Sprintf("its sender has the identity of the node %s, not of %s", other, a.Node)
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
	return w.approve(ctx, s, csr, "The node's own identity sent the request.")
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
