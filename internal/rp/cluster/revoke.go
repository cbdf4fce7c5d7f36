package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

const (
	// revokedName is the ConfigMap in kube-system, and the ValidatingAdmissionPolicy with its binding,
	// that refuse writes of revoked certificates (rbac-provider.yaml).
	revokedName = "flexnode-revoked"
	// revokedAgain is the pause before a retry in a cluster that cannot refuse them.
	revokedAgain = time.Minute
)

// followCertificates queues revocations when they are written.
func (w *worker) followCertificates(ctx context.Context) {
	w.revocations.Clear()
	w.Store.Certificates.Sync(ctx, w.key+"/", func(r store.Row[flexnode.Certificates]) {
		if r.Value.Since.IsZero() && r.Value.Leaving == "" { // or it does not exist
			w.revocations.Delete(r.Key)
			return
		}
		w.revocations.Store(r.Key, r.Value)
		w.tasks.Add(task{kind: taskRevoke})
		if r.Value.Leaving != "" {
			w.tasks.Add(task{taskLeave, r.Key})
		}
	}, nil, func(err error) {
		w.log.Warn("cannot follow the certificates", slog.Any("error", err))
	})
}

// revoke makes the cluster refuse writes of revoked certificates: it lists those that may still
// write as a Node. It keeps entries of names that it does not know: the store may have been
// restored from a backup. The time is that of the next change.
func (w *worker) revoke(ctx context.Context) (time.Time, error) {
	rows := map[string]flexnode.Certificates{}
	for key, row := range w.revocations.Range {
		rows[key.(string)] = row.(flexnode.Certificates)
	}
	if len(rows) == 0 {
		return noTime, nil
	}
	s, err := w.use()
	if err != nil {
		return noTime, err
	}
	if !refusesCertificates(*s.version.Load()) {
		return time.Now().Add(revokedAgain), nil // the probe warns about it
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	is, err := s.connection.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).
		Get(ctx, revokedName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return time.Now().Add(revokedAgain), nil
	case err != nil:
		return noTime, fmt.Errorf("cannot read which certificates are revoked: %w", err)
	}
	now := time.Now()
	if err := w.list(ctx, s, changes(rows, is.Data, now)); err != nil {
		return noTime, err
	}
	next := noTime
	for key, row := range rows {
		if row.Over(now) {
			if err := w.restore(ctx, key); err != nil {
				return noTime, err
			}
		}
		if at := row.Next(now); next.IsZero() || !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	return next, nil
}

// changes returns the changed entries of the ConfigMap; nil for one to delete.
func changes(
	rows map[string]flexnode.Certificates, listed map[string]string, now time.Time,
) map[string]any {
	all := map[string]any{}
	for key, row := range rows {
		name := flexnode.LastOf(key)
		was, there := listed[name]
		may, alone := row.May(now)
		switch {
		case alone:
			revoked := row.Revoked(now)
			for _, id := range strings.Fields(was) { // a listed one stays listed
				if !slices.Contains(may, id) && !slices.Contains(revoked, id) {
					may = append(may, id)
				}
			}
			slices.Sort(may)
			if next := strings.Join(may, " "); next != was || !there {
				all[name] = next
			}
		case there && row.Over(now):
			all[name] = nil
		}
	}
	return all
}

// list changes entries of the ConfigMap.
func (w *worker) list(ctx context.Context, s *session, changed map[string]any) error {
	if len(changed) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"data": changed})
	if err != nil {
		return fmt.Errorf("internal error: cannot encode revoked certificates: %w", err)
	}
	if !w.owner.Valid() {
		return errNotOwner
	}
	ctx, cancel := context.WithTimeout(ctx, effectTimeout)
	defer cancel()
	_, err = s.connection.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).
		Patch(ctx, revokedName, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("cannot revoke certificates: %w", err)
	}
	for name, ids := range changed {
		w.Audit.Info("certificates that alone may write as a Node", "cluster", w.key, "node", name,
			"listed", ids)
	}
	w.did("certificates revoked")
	return nil
}

// restore records that the revoked certificates of a node have expired.
func (w *worker) restore(ctx context.Context, key string) error {
	return w.update(ctx, "revoked certificates ended", nil, func(v *store.View) error {
		row := w.Store.Certificates.Row(v, key)
		if !row.Value.Over(time.Now()) {
			return nil
		}
		next := row.Value.Restored(time.Now())
		if len(next.Seen) == 0 && next.Leaving == "" {
			w.Store.Certificates.Delete(v, key)
			return nil
		}
		return w.Store.Certificates.Put(v, key, next)
	})
}

// certificatesSince is the first version of Kubernetes whose API server reports the certificate of
// a request.
var certificatesSince = version.MajorMinor(1, 32)

// refusesCertificates reports whether a version of Kubernetes can refuse some certificates of a
// node and not others.
func refusesCertificates(text string) bool {
	v, err := version.ParseGeneric(text)
	return err == nil && v.AtLeast(certificatesSince)
}

// irrevocable warns if the cluster would not refuse writes of a deleted node's machine.
func (c *Connection) irrevocable(ctx context.Context, kubernetes string) []string {
	const end = " The machine of a deleted node can write as its Node until its certificate ends."
	if !refusesCertificates(kubernetes) {
		return []string{"Kubernetes before 1.32 does not tell by which certificate a node writes." + end}
	}
	_, err := c.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).
		Get(ctx, revokedName, metav1.GetOptions{})
	if err == nil {
		_, err = c.Client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().
			Get(ctx, revokedName, metav1.GetOptions{})
	}
	if err == nil {
		return nil
	}
	return []string{"The ConfigMap kube-system/" + revokedName + " or the " +
		"ValidatingAdmissionPolicyBinding " + revokedName + " cannot be read: apply " +
		"rbac-provider.yaml." + end}
}
