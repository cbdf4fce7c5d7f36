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

	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// review is the review of a certificate request in a session.
type review struct {
	*worker
	answers
	s          *session
	csr        *certificates.CertificateSigningRequest
	sender     string // the node that sent it with its certificate; "" if none did
	a          credential.Application
	credential string // key of the credential with whose token it was made; "" without
}

// denial is the reason that a request is denied.
type denial string

func (d denial) Error() string { return string(d) }

// reviewNamed decides on the certificate request with a name, in its present state.
func (w *worker) reviewNamed(ctx context.Context, s *session, name string) (time.Time, error) {
	for _, requests := range s.requests {
		known, _, _ := requests.GetByKey(name) // a store in memory has no errors
		if csr, ok := known.(*certificates.CertificateSigningRequest); ok {
			r := review{worker: w, answers: answersOf(csr), s: s, csr: csr, sender: nodeIn(csr)}
			switch {
			case !concerns(csr) || r.isAnswered():
				return noTime, nil
			case !w.reviews[r.approved].Allow():
				return time.Now().Add(reviewPause), nil
			}
			return r.decide(ctx)
		}
	}
	return noTime, nil
}

// decide answers the request, if that is the provider's to decide. The time is that of the next
// review.
func (r *review) decide(ctx context.Context) (again time.Time, err error) {
	serving := r.csr.Spec.SignerName == certificates.KubeletServingSignerName
	message := ""
	if serving {
		message, again, err = r.serving(ctx)
	} else {
		r.a = readCSR(r.csr)
		message, err = r.client(ctx)
	}
	if why, denied := errors.AsType[denial](err); denied {
		err = r.deny(ctx, string(why))
	} else if err == nil && message != "" {
		r.Count(Approved)
		err = r.answer(ctx, certificates.CertificateApproved, approvedReason, message)
	}
	if serving && apierrors.IsForbidden(err) { // the cluster has the previous roles
		r.log.Warn("cannot answer requests for serving certificates; apply rbac-provider.yaml",
			"csr", r.csr.Name, "error", err)
		return time.Now().Add(servingLast), nil
	}
	return again, err
}

// client decides on a request for a node's client certificate, or records the effect of another
// approver's answer. It returns the message of an approval; "" leaves the request alone.
func (r *review) client(ctx context.Context) (message string, err error) {
	byToken := r.a.TokenID != ""
	switch {
	case r.sender != "":
		return r.renewal(ctx)
	case byToken && (r.approved || r.issued):
		return "", r.noteApproved(ctx)
	case byToken:
		return r.token(ctx)
	case r.issued:
		return "", r.noteIssued(ctx)
	case r.approved:
		return "", nil
	}
	return r.identity(ctx)
}

// noteApproved records that some approver has approved a request: its token is used up.
func (r *review) noteApproved(ctx context.Context) error {
	row, err := r.Credentials.ByToken(ctx, r.key, r.a.TokenID)
	if err != nil || !row.Exists() {
		return err
	}
	switch c := row.Value; {
	case c.State == store.Pending || c.State == store.Live:
		r.Audit.Warn("certificate request approved by another approver", "cluster", r.key,
			"csr", r.a.Name, "node", r.a.Node, "credential", row.Key)
		if err := r.Credentials.Consume(ctx, row.Key, r.a, r.owner.Fence()); err != nil {
			return err
		}
	case c.State == store.Consumed && c.KeyHash != r.a.KeyHash:
		r.Audit.Warn("a used bootstrap token has been approved again by another approver",
			"cluster", r.key, "csr", r.a.Name, "node", r.a.Node, "credential", row.Key)
	}
	if !r.issued {
		return nil
	}
	to := flexnode.Certificate{}
	if row.Value.KeyHash == r.a.KeyHash && row.Value.State != store.Revoking {
		to.UID, to.Enrolment = row.Value.UID, flexnode.LastOf(row.Key)
	}
	if err := r.noteCertificate(ctx, r.a.Node, to); err != nil {
		return err
	}
	return r.Credentials.Issued(ctx, row.Key, r.a.Name, r.owner.Fence())
}

// token decides on a request with one of the provider's tokens. The first valid request consumes
// the token, which is written before it is approved.
func (r *review) token(ctx context.Context) (message string, err error) {
	row, err := r.Credentials.ByToken(ctx, r.key, r.a.TokenID)
	if err != nil || !row.Exists() && !slices.Contains(r.csr.Spec.Groups,
		tokenGroup(r.Installation, r.key)) {
		return "", err // other approvers decide on other groups
	}
	r.credential = row.Key
	why := credential.Decide(r.a, row)
	if why == "" && row.Value.State == store.Live {
		if err := r.taken(r.s, r.a.Node); err != nil {
			return "", err
		}
		if err := r.Credentials.Consume(ctx, row.Key, r.a, r.owner.Fence()); err != nil {
			return "", err
		}
		// Another request may have been faster, or the node was deleted.
		if row, err = r.Credentials.ByToken(ctx, r.key, r.a.TokenID); err != nil {
			return "", err
		}
		why = credential.Decide(r.a, row)
		if why == "" && row.Value.State != store.Consumed {
			return "", fmt.Errorf("internal error: the credential %s was not consumed", row.Key)
		}
	}
	if why != "" {
		return "", denial(why)
	}
	return "This is the first request with the bootstrap token of the node.", nil
}

var errNodes = errors.New("the Nodes of the cluster are not known yet")

// taken returns a denial if a machine cannot have the name of a Node: the present Node of that name
// is no flex node, or is another installation's, and the machine's certificate would be for it.
func (w *worker) taken(s *session, name string) error {
	if !s.nodesKnown.Load() || !w.certified.Load() {
		return errNodes
	}
	if node := s.node(name); node != nil && s.other(node) {
		return denial("the cluster has a Node of this name that is not a flex node of this provider")
	}
	return nil
}

// approvedReason is the reason of the provider's own approvals.
const approvedReason = "FlexNodeApproved"

// deny denies the request, and records the reason at the credential that it was made with.
func (r *review) deny(ctx context.Context, why string) error {
	a := r.a
	if r.credential == "" { // the audit line has no credential that names the cluster
		a.Node = r.key + "/" + a.Node
	}
	if err := r.Credentials.Denied(ctx, r.credential, a, why, r.owner.Fence()); err != nil {
		return err
	}
	r.Count(Denied)
	return r.answer(ctx, certificates.CertificateDenied, "FlexNodeDenied", "Denied: "+why+".")
}

func (r *review) answer(
	ctx context.Context, kind certificates.RequestConditionType, reason, message string,
) error {
	if !r.owner.Valid() {
		return errNotOwner
	}
	ctx, cancel := context.WithTimeout(ctx, effectTimeout)
	defer cancel()
	answered := r.csr.DeepCopy()
	answered.Status.Conditions = append(answered.Status.Conditions,
		certificates.CertificateSigningRequestCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message,
			LastUpdateTime: metav1.Now(),
		})
	_, err := r.s.Client.CertificatesV1().CertificateSigningRequests().
		UpdateApproval(ctx, r.csr.Name, answered, metav1.UpdateOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil // the watch sees the change, and the request is reviewed again
	case err != nil:
		return fmt.Errorf("cannot answer the certificate request %s: %w", r.csr.Name, err)
	}
	if r.csr.UID != "" {
		r.s.answered.Add(r.csr.UID, struct{}{})
	}
	r.Store.Did("certificate request answered")
	return nil
}

// isAnswered reports whether the request needs no review: it is denied, has its serving certificate
// approved, or was answered in this session. The approval of a client certificate needs a record.
func (r *review) isAnswered() bool {
	if r.approved || r.issued {
		return r.denied || r.csr.Spec.SignerName == certificates.KubeletServingSignerName
	}
	return r.denied || r.s.answered.Contains(r.csr.UID)
}

// identity decides on a request of an Azure identity: a node's own may have the certificate of that
// node and of no other. Other callers' requests are left alone.
func (r *review) identity(ctx context.Context) (message string, err error) {
	user := r.csr.Spec.Username
	node, err := r.Store.Nodes.Get(ctx, r.key+"/"+r.a.Node) // the index may have another of its name
	if err != nil {
		return "", err
	}
	if isNode(node.Value, user) {
		if r.a.Flaw != "" {
			return "", denial(r.a.Flaw)
		}
		return "The node's own identity sent the request.", r.consumeURL(ctx, node.Value)
	}
	for _, key := range r.Index.Identified(r.key, user) {
		known, err := r.Index.Node(key)
		if err != nil {
			return "", err
		}
		if !isNode(known.Value, user) {
			continue
		}
		if other, err := r.Store.Nodes.Get(ctx, key); err != nil || !isNode(other.Value, user) {
			return "", err
		}
		return "", denial(fmt.Sprintf("its sender has the identity of the node %s, not of %s",
			flexnode.LastOf(key), r.a.Node))
	}
	return "", nil
}

// consumeURL makes the URL of a node dead, before a request of the node's own identity is approved:
// if a machine may have fetched its configuration, it was this one.
func (r *review) consumeURL(ctx context.Context, node flexnode.Node) error {
	if err := r.taken(r.s, r.a.Node); err != nil || node.Credential == "" {
		return err
	}
	row, err := r.Store.Credentials.Get(ctx, node.Credential)
	if err != nil || row.Value.State != store.Live || !r.Credentials.MayBeFetched(row.Value) {
		return err
	}
	return r.Credentials.Consume(ctx, row.Key, r.a, r.owner.Fence())
}

func (r *review) noteIssued(ctx context.Context) error {
	row, err := r.Index.Node(r.key + "/" + r.a.Node)
	node := row.Value
	if err != nil || !isNode(node, r.csr.Spec.Username) {
		return err
	}
	to := flexnode.Certificate{UID: node.UID, Enrolment: "identity"}
	err = r.noteCertificate(ctx, r.a.Node, to)
	if err != nil || node.Credential == "" {
		return err
	}
	return r.Credentials.Issued(ctx, node.Credential, r.a.Name, r.owner.Fence())
}

// isNode reports whether a user of the API server is the identity of a node that joins with it: AKS
// uses an identity's object id as its user name. It is not while the node's machine is shut out.
func isNode(n flexnode.Node, user string) bool {
	if !n.Desired.KubernetesAuth.UseAzureAuth || user == "" || n.MachineKey == flexnode.ShutOut {
		return false
	}
	is := func(identity string) bool {
		kind, rest, _ := strings.Cut(identity, ":")
		return (kind == "oid" || kind == "app") && strings.EqualFold(flexnode.LastOf(rest), user)
	}
	return strings.EqualFold(n.PrincipalID(), user) || is(n.Identity) ||
		slices.ContainsFunc(n.Former.All(), is)
}
