package front

import (
	"cmp"
	"context"
	"crypto/x509"
	"reflect"
	"slices"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/machinekey"
	"github.com/Azure/AKSFlexNode/internal/machinekey/verifier"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// registerKey registers a machine's key for a node. The machine proves the key by a signature, and
// the node by an enrolment secret or by the node's Azure identity.
func (a *API) registerKey(r *request, ask api.RegisterKey) (any, error) {
	key, boot, err := r.keyToRegister(ask)
	if err != nil {
		return nil, err
	}
	var leaf *x509.Certificate // that the machine proves to have
	if p := ask.Kubelet; p != nil {
		is, err := verifier.SignedByKubelet(p.Certificate, p.Signature, machinekey.Statement(r.uid, key))
		if err == nil && a.Now().Before(is.NotAfter) {
			leaf = is
		}
	}
	certificate, err := a.provedByKubelet(r, key, leaf)
	if err != nil {
		return nil, err
	}
	var as flexnode.Registration
	err = a.change(r, "machine key registered", func(v *store.View) error {
		row := a.Store.Nodes.Row(v, r.nodeKey())
		if !row.Exists() || !named(r.uid, row.Value.UID) {
			return unenrolled()
		}
		next := row.Value.Proved(key, boot, a.Store.Epoch(v), a.Now())
		if as = flexnode.Registered; !a.stands(v, r, row.Value, certificate) {
			enrolment, err := a.enrols(r, row.Value, ask)
			if err != nil {
				return err
			}
			next, as = row.Value.Register(key, boot, enrolment, a.Store.Epoch(v), a.Now())
			if was := row.Value.MachineKey; was != "" && was != next.MachineKey {
				next.Principal = ""
				next.Joining = a.revokeJoining(v, next.Joining, enrolment)
				v.Fail(a.revokeReplaced(v, r, was, enrolment, leaf))
			}
		}
		if as == flexnode.Registered { // an Azure token takes precedence over the machine's claim
			next = next.Joins(cmp.Or(r.caller.ObjectID, ask.PrincipalID))
		}
		if next.MachineKey != row.Value.MachineKey {
			v.Fail(a.returns(v, r, next))
		}
		if used := next.Enrolment != row.Value.Enrolment; used && next.State == "" && leaf != nil &&
			row.Value.MachineKey != flexnode.ShutOut { // the machine will request no certificate
			next.Used = true
			v.Fail(a.Credentials.Release(v, &next))
		}
		if reflect.DeepEqual(next, row.Value) {
			return nil
		}
		r.after = key
		return a.Store.Nodes.Put(v, r.nodeKey(), next)
	})
	switch {
	case err == nil && as == flexnode.Unenrolled:
		err = unenrolled()
	case err == nil && as == flexnode.Second:
		err = secondMachine()
	}
	return nil, err
}

// revokeReplaced revokes the certificates of a machine that another one has replaced with an
// enrolment secret, except a certificate that the latter proves to have: it may be the same
// machine. was is the key of the former. If that one was shut out, all its certificates stay
// revoked, also one that is not stored any more.
func (a *API) revokeReplaced(
	v *store.View, r *request, was, enrolment string, leaf *x509.Certificate,
) error {
	own, now := flexnode.Certificate{UID: r.uid, Enrolment: enrolment}, a.Now()
	if leaf != nil && was != flexnode.ShutOut {
		own.ID, own.Ends = flexnode.CertificateID(leaf.Raw), now.Add(flexnode.LongestCertificate)
		own.Ends = slices.MinFunc([]time.Time{own.Ends, leaf.NotAfter}, time.Time.Compare)
	}
	row := a.Store.Certificates.Row(v, r.nodeKey())
	next := row.Value.Revoke("", func(o flexnode.Certificate) bool {
		return o.Enrolment == enrolment || o.ID == own.ID
	}, now, a.Store.Epoch(v))
	if own.ID != "" { // a restored store may lack it
		next = next.Note(own, "", true, now)
	}
	return a.Store.Certificates.Put(v, r.nodeKey(), next)
}

// returns gives a node the certificates that its machine has as a deleted node of that name.
func (a *API) returns(v *store.View, r *request, n flexnode.Node) error {
	row := a.Store.Certificates.Row(v, r.nodeKey())
	if row.Value.HeldUntil(a.Now()).IsZero() {
		return nil
	}
	stones, err := a.Store.Tombstones.Row(v, r.nodeKey()).Value.All()
	v.Fail(err)
	for _, stone := range stones {
		if stone.MachineKey == n.MachineKey {
			row.Value = row.Value.Return(stone.UID, n.UID)
		}
	}
	return a.Store.Certificates.Put(v, r.nodeKey(), row.Value)
}

// keyToRegister returns the thumbprint of the key that a request registers, and the machine's boot.
func (r *request) keyToRegister(ask api.RegisterKey) (key, boot string, err error) {
	if r.caller.isMachine() {
		return r.caller.MachineKey, r.caller.Boot.ID, nil
	}
	machines, ok := r.listener.authenticate.(*machines)
	if !ok {
		return "", "", r.forbidden(r.scope())
	}
	token, c, err := machines.verify(ask.MachineToken)
	if err != nil {
		return "", "", err
	}
	bound := machinekey.RequestOf(r.Method, r.URL.Path, nil) // the body has the token itself
	if token.Request != bound || r.uid != "" && r.uid != c.UID {
		return "", "", badToken("It is for another request.")
	}
	r.uid = c.UID
	return c.MachineKey, c.Boot.ID, nil
}

// enrols returns the id of the enrolment secret with which a request registers a key, or "" for the
// node's Azure identity. A machine needs one of them, unless the node has its key.
func (a *API) enrols(r *request, n flexnode.Node, ask api.RegisterKey) (string, error) {
	if !r.caller.isMachine() {
		if r.caller.hasIdentity(n.Identity, n.Former) {
			return "", nil
		}
		return "", r.forbidden(r.scope())
	}
	id := a.Credentials.Enrolment(n.UID, ask.EnrolmentSecret)
	if id == "" && r.caller.MachineKey != n.MachineKey {
		return "", unenrolled()
	}
	return id, nil
}

// unenrolled returns the error for a machine that does not prove that it may be the node.
func unenrolled() error {
	return arm.Errorf(401, "EnrolmentFailed", "The machine's key is not registered: the enrolment "+
		"secret does not belong to this node, or it was used, replaced, or has expired. POST "+
		"regenerateToken to create a URL with a new one.")
}

// Kubelets asks clusters about the certificates of their kubelets.
type Kubelets interface {
	// ProvesKubelet returns an error unless a certificate is one of a node's kubelet, approved
	// here.
	ProvesKubelet(ctx context.Context, c flexnode.Cluster, node string, leaf *x509.Certificate) error
}

// stands reports whether the proof of a kubelet holds for the stored node: no other machine has
// become the node since, and the certificate is not revoked.
func (a *API) stands(v *store.View, r *request, n flexnode.Node, certificate string) bool {
	return certificate != "" && n.MachineKey == r.known.MachineKey &&
		n.MachineKey != flexnode.ShutOut &&
		!a.Store.Certificates.Row(v, r.nodeKey()).Value.IsRevoked(certificate, a.Now())
}

// provedByKubelet returns the id of a certificate that a machine with a key has, if it is one of
// the kubelet of a request's node; "" otherwise. It counts only after a restore, when the store may
// lack changes since the backup.
func (a *API) provedByKubelet(r *request, key string, leaf *x509.Certificate) (string, error) {
	poll := a.lookUp(r)
	if leaf == nil || poll == nil || a.Kubelets == nil || poll.MachineKey == key {
		return "", nil
	}
	epoch, err := a.Store.ReadEpoch(r.Context())
	if err != nil || epoch == 1 {
		return "", err
	}
	cluster, err := a.Index.Cluster(r.clusterKey())
	if err != nil || !cluster.Exists() {
		return "", err
	}
	name := flexnode.LastOf(r.nodeKey())
	if refused := a.Kubelets.ProvesKubelet(r.Context(), cluster.Value, name, leaf); refused != nil {
		a.Audit.Warn("a machine's key is not proved by its kubelet", "node", r.nodeKey(), "key", key,
			"why", refused)
		return "", nil
	}
	a.Audit.Warn("a machine's key is proved by its kubelet after a restore", "node", r.nodeKey(),
		"key", key)
	return flexnode.CertificateID(leaf.Raw), nil
}
