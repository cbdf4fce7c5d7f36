package cluster

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	certificates "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// credentialKey is the extra of a user with the id of its certificate, since Kubernetes 1.32.
const credentialKey = "authentication.kubernetes.io/credential-id"

// credentialOf returns the id of the certificate with which a request was sent; "" if the API
// server does not report it.
func credentialOf(csr *certificates.CertificateSigningRequest) string {
	if ids := csr.Spec.Extra[credentialKey]; len(ids) == 1 {
		return ids[0]
	}
	return ""
}

// reduceCertificate returns the id and the end of an issued certificate as text, or another text if
// it cannot be read.
func reduceCertificate(chain []byte) []byte {
	if len(chain) == 0 {
		return nil
	}
	if block, _ := pem.Decode(chain[:min(len(chain), maxRequest)]); block != nil {
		if leaf, err := x509.ParseCertificate(block.Bytes); err == nil {
			return []byte(flexnode.CertificateID(leaf.Raw) + " " +
				leaf.NotAfter.UTC().Format(time.RFC3339))
		}
	}
	return []byte("issued")
}

// noteCertificate records that the certificate of the request, if any, was issued to the machine of
// a node: to has the node's uid and its enrolment. If a machine of that name was revoked, it is
// listed. In a restored store, what the cluster lists is adopted first.
func (r *review) noteCertificate(ctx context.Context, name string, to flexnode.Certificate) error {
	if name == "" {
		return nil
	}
	id, end, _ := strings.Cut(string(r.csr.Status.Certificate), " ")
	ends, err := time.Parse(time.RFC3339, end)
	to.ID, to.Ends = id, ends
	renewed := ""
	if r.sender != "" {
		renewed = credentialOf(r.csr)
	}
	key := r.key + "/" + name
	ahead := []string{r.Store.Nodes.Key(key), r.Store.Certificates.Key(key), r.Store.EpochKey()}
	return r.update(ctx, "certificate noted", ahead, func(v *store.View) error {
		node, row := r.Store.Nodes.Row(v, key), r.Store.Certificates.Row(v, key)
		next, now := row.Value, time.Now()
		epoch := r.Store.Epoch(v)
		if epoch > max(1, next.Epoch) {
			listed, there, err := r.s.listed(ctx)
			v.Fail(err)
			if ids, has := listed[name]; has {
				next = next.Adopt(strings.Fields(ids), node.Value.UID, now, epoch)
			} else if there {
				next.Epoch = epoch // the list is not read again for this name
			}
		}
		if err == nil {
			next = next.Note(to, renewed, node.Exists() && node.Value.Admits(to, next, epoch), now)
		}
		return r.Store.Certificates.Replace(v, key, row.Value, next)
	})
}

// renewal records the renewed certificate of a node. Other approvers decide on the request, unless
// a machine of the node's name was revoked: then it is approved if its sender's certificate is
// listed.
func (r *review) renewal(ctx context.Context) (message string, err error) {
	key := r.key + "/" + r.sender
	node, err := r.Index.Node(key)
	if _, revoked := r.revocations.Load(key); err != nil || !node.Exists() && !revoked {
		return "", err // not a flex node
	}
	err = r.noteCertificate(ctx, r.sender, flexnode.Certificate{})
	if err != nil || r.issued {
		return "", err
	}
	row, err := r.Store.Certificates.Get(ctx, key)
	may, alone := row.Value.May(time.Now())
	switch {
	case err != nil || r.approved || !alone:
		return "", err
	case r.a.Flaw != "":
		return "", denial(r.a.Flaw)
	case r.a.Node != r.sender:
		return "", denial("its sender is not the node")
	case !slices.Contains(may, credentialOf(r.csr)):
		return "", denial("the certificate of its sender was revoked")
	}
	return "The node renews its certificate.", nil
}

// deleteNode deletes the Node of a machine that has left, unless it is another machine's or gone
// already.
func (w *worker) deleteNode(ctx context.Context, s *session, key string) (time.Time, error) {
	row, err := w.Store.Certificates.Get(ctx, key)
	leaving, name := row.Value.Leaving, flexnode.LastOf(key)
	if err != nil || leaving == "" {
		return noTime, err
	}
	node, err := w.Store.Nodes.Get(ctx, key)
	if err != nil || !s.nodesKnown.Load() {
		return noTime, cmp.Or(err, errNodes)
	}
	seen := s.node(name) // by its labels, as another's must not be deleted
	if (seen == nil || !seen.otherByLabels()) && (!node.Exists() || node.Value.UID == leaving) {
		if !w.owner.Valid() {
			return noTime, errNotOwner
		}
		ctx, cancel := context.WithTimeout(ctx, effectTimeout)
		defer cancel()
		err := s.Client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
		switch {
		case apierrors.IsForbidden(err):
			w.log.Warn("the provider may not delete Nodes: apply rbac-provider.yaml", "node", name,
				"error", err)
			return time.Now().Add(taintsRefusal), nil
		case err == nil:
			w.Audit.Info("Node deleted, since its machine has left", "cluster", w.key, "node", name)
			w.Store.Did("Node deleted")
		case !apierrors.IsNotFound(err):
			return noTime, fmt.Errorf("cannot delete the Node %s: %w", name, err)
		}
	}
	return noTime, w.update(ctx, "Node deleted", nil, func(v *store.View) error {
		row := w.Store.Certificates.Row(v, key)
		if row.Value.Leaving != leaving {
			return nil
		}
		row.Value.Leaving = ""
		return w.Store.Certificates.Put(v, key, row.Value)
	})
}

const (
	// revokedName is the ConfigMap in kube-system, and the ValidatingAdmissionPolicy with its binding,
	// that refuse writes of revoked certificates (rbac-provider.yaml).
	revokedName  = "flexnode-revoked"
	maxConfigMap = 1 << 20     // bytes
	revokedAgain = time.Minute // the pause before a retry in a cluster that cannot refuse them
)

func (w *worker) followCertificates(ctx context.Context) {
	w.revocations.Clear()
	w.machines.Clear()
	w.certified.Store(false)
	w.Store.Certificates.Sync(ctx, w.key+"/", func(r store.Row[flexnode.Certificates]) {
		w.machines.Store(r.Key, r.Value.OursUntil())
		w.noteReady(r.Key)
		if r.Value.Since.IsZero() && r.Value.Leaving == "" { // or it does not exist
			w.revocations.Delete(r.Key)
			return
		}
		w.revocations.Store(r.Key, r.Value)
		w.tasks.Add(task{kind: taskRevoke})
		if r.Value.Leaving != "" {
			w.tasks.Add(task{taskLeave, r.Key})
		}
	}, func() { w.certified.Store(true) }, func(err error) {
		w.log.Warn("cannot follow the certificates", slog.Any("error", err))
	})
}

// isOurs reports whether a machine with a certificate of this provider can be the Node of a name. A
// machine can change the labels of its Node, by which others are known.
func (w *worker) isOurs(name string) bool {
	end, _ := w.machines.Load(w.key + "/" + name)
	until, _ := end.(time.Time)
	return time.Now().Before(until)
}

// revoke makes the cluster refuse writes of revoked certificates: it lists those that may still
// write as a Node. It keeps entries of names that it does not know: the store may have been
// restored from a backup. Then it first adopts what the cluster lists for the others. The time is
// that of the next change.
func (w *worker) revoke(ctx context.Context, s *session) (time.Time, error) {
	rows := map[string]flexnode.Certificates{}
	for key, row := range w.revocations.Range {
		rows[key.(string)] = row.(flexnode.Certificates)
	}
	if len(rows) == 0 {
		return noTime, nil
	}
	if !refusesCertificates(s.found.Load().version) { // the probe warns about it
		_, err := w.restoreEnded(ctx, rows)
		return time.Now().Add(revokedAgain), err
	}
	listed, there, err := s.listed(ctx)
	if err != nil || !there {
		return time.Now().Add(revokedAgain), err
	}
	epoch, err := w.Store.ReadEpoch(ctx)
	for key, row := range rows {
		if ids, has := listed[flexnode.LastOf(key)]; has && epoch > max(1, row.Epoch) && err == nil {
			err = w.update(ctx, "listed certificates adopted", nil, func(v *store.View) error {
				node, row := w.Store.Nodes.Row(v, key), w.Store.Certificates.Row(v, key)
				rows[key] = row.Value.Adopt(strings.Fields(ids), node.Value.UID, time.Now(), epoch)
				return w.Store.Certificates.Replace(v, key, row.Value, rows[key])
			})
		}
	}
	if err == nil {
		err = w.list(ctx, s, changes(rows, listed, time.Now()))
	}
	if err != nil {
		return noTime, err
	}
	return w.restoreEnded(ctx, rows)
}

// listed returns the entries of the ConfigMap, and whether the provider may read it.
func (c *Connection) listed(ctx context.Context) (map[string]string, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	is, err := c.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).
		Get(ctx, revokedName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return nil, false, fmt.Errorf("cannot read which certificates are revoked: %w", err)
	}
	return is.Data, err == nil, nil
}

// restoreEnded forgets revocations that have ended. The time is that of the next change.
func (w *worker) restoreEnded(
	ctx context.Context, rows map[string]flexnode.Certificates,
) (next time.Time, err error) {
	now := time.Now()
	for key, row := range rows {
		if row.Over(now) {
			err := w.update(ctx, "revoked certificates ended", nil, func(v *store.View) error {
				row := w.Store.Certificates.Row(v, key)
				if !row.Value.Over(now) {
					return nil
				}
				next := row.Value.Restored(now)
				if len(next.Seen) == 0 && next.Leaving == "" {
					w.Store.Certificates.Delete(v, key)
					return nil
				}
				return w.Store.Certificates.Put(v, key, next)
			})
			if err != nil {
				return noTime, err
			}
		}
		if at := row.Next(now); next.IsZero() || !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	return next, nil
}

// entry is a changed entry of the ConfigMap.
type entry struct {
	name   string
	ids    any // nil for one to delete
	growth int
}

// changes returns the changed entries of the ConfigMap, first those that make room in it.
func changes(
	rows map[string]flexnode.Certificates, listed map[string]string, now time.Time,
) (all []entry) {
	for key, row := range rows {
		name := flexnode.LastOf(key)
		was, there := listed[name]
		may, alone := row.May(now)
		switch {
		case alone:
			slices.Sort(may)
			if next := strings.Join(may, " "); next != was || !there {
				all = append(all, entry{name, next, len(next) - len(was)})
			}
		case there && row.Over(now):
			all = append(all, entry{name, nil, -len(was)})
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return a.growth - b.growth })
	return all
}

// list writes the changed entries, or only the first of them if the cluster does not accept all: a
// ConfigMap has at most 1 MiB.
func (w *worker) list(ctx context.Context, s *session, changed []entry) error {
	if len(changed) == 0 {
		return nil
	}
	data := map[string]any{}
	for _, e := range changed {
		data[e.name] = e.ids
	}
	err := patch(ctx, w, s.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem), revokedName,
		map[string]any{"data": data})
	if half := len(changed) / 2; err != nil && half > 0 {
		if err = w.list(ctx, s, changed[:half]); err == nil {
			err = w.list(ctx, s, changed[half:])
		}
		return err
	}
	if err != nil {
		return fmt.Errorf("cannot revoke certificates: %w", err)
	}
	for name, ids := range data {
		w.Audit.Info("certificates that alone may write as a Node", "cluster", w.key, "node", name,
			"listed", ids)
	}
	w.Store.Did("certificates revoked")
	return nil
}

// refusesCertificates reports whether a version of Kubernetes can refuse some certificates of a
// node and not others: since 1.32 the API server reports the certificate of a request.
func refusesCertificates(text string) bool {
	v, err := version.ParseGeneric(text)
	return err == nil && v.AtLeast(version.MajorMinor(1, 32))
}

// irrevocable warns if the cluster would not refuse writes of a deleted node's machine, or can list
// few more.
func (c *Connection) irrevocable(ctx context.Context, kubernetes string) []string {
	const end = " The machine of a deleted node can write as its Node until its certificate ends."
	if !refusesCertificates(kubernetes) {
		return []string{"Kubernetes before 1.32 does not tell by which certificate a node writes." + end}
	}
	is, err := c.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).
		Get(ctx, revokedName, metav1.GetOptions{})
	if err == nil {
		_, err = c.Client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().
			Get(ctx, revokedName, metav1.GetOptions{})
	}
	if err != nil {
		return []string{"The ConfigMap kube-system/" + revokedName + " or the " +
			"ValidatingAdmissionPolicyBinding " + revokedName + " cannot be read: apply " +
			"rbac-provider.yaml." + end}
	}
	if is.Size() > maxConfigMap*4/5 {
		return []string{"The ConfigMap kube-system/" + revokedName + " is nearly full: give new " +
			"machines new names until older certificates have ended."}
	}
	return nil
}
