package credential

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// forsaken limits the time of attempts in a cluster whose registration is being deleted: after it
// the cluster's tokens are left to expire.
const forsaken = 2 * time.Minute

// remove removes the bundle and Secret of a revoked credential, and then its rows.
func (w worker) remove(ctx context.Context, x subject) error {
	if err := w.Delivery.Remove(ctx, x.key); err != nil {
		return err
	}
	w.Store.Did("bundle gone")
	if x.row.Value.TokenID != "" {
		if err := w.removeToken(ctx, x); err != nil {
			return err
		}
		w.Store.Did("Secret gone")
	}
	err := w.update(ctx, "credential gone", x.key, func(v *store.View, x subject) error {
		if x.row.Value.State != store.Revoking {
			return errMoved
		}
		return w.forget(v, x)
	})
	if err == nil {
		w.Audit.Info("credential revoked", "credential", x.key, "node", x.row.Value.Node,
			"used", x.row.Value.KeyHash != "" || x.row.Value.Issued != nil)
	}
	return err
}

// removeToken deletes the Secret of a credential. If the cluster does not answer, it leaves the
// Secret to expire, once the registration is being deleted or the token has expired:
// kube-controller-manager deletes it.
func (w worker) removeToken(ctx context.Context, x subject) error {
	err := w.tokens.Remove(ctx, x.row.Value)
	if err == nil {
		return nil
	}
	cluster, failed := w.Store.Clusters.Get(ctx, x.row.Value.Cluster)
	if failed != nil {
		return errors.Join(err, failed)
	}
	c := cluster.Value
	if cluster.Exists() && c.APIServer == "" { // it was never reached: there is nothing of ours in it
		return nil
	}
	waits := !c.Deleting() || w.now().Before(c.Deletion.Since.Add(forsaken)) ||
		w.now().Before(x.row.Value.Since.Add(forsaken)) // its node may be deleted late
	if cluster.Exists() && waits && w.now().Before(x.row.Value.Expires) {
		return err
	}
	w.Audit.Warn("bootstrap token left in a cluster that does not answer", "credential", x.key,
		"node", x.row.Value.Node, "tokenId", x.row.Value.TokenID,
		"expires", x.row.Value.Expires, "error", fmt.Sprint(err))
	return nil
}

// forget deletes the rows of a credential, and its node's reference to it.
func (s *Service) forget(v *store.View, x subject) error {
	c := x.row.Value
	if c.TokenID != "" {
		if key := c.Cluster + "/" + c.TokenID; s.Store.Tokens.Row(v, key).Value == x.key {
			s.Store.Tokens.Delete(v, key)
		}
	}
	s.Store.Bundles.Delete(v, x.key)
	s.Store.Credentials.Delete(v, x.key)
	if !x.node.Exists() {
		return nil
	}
	n := x.node.Value
	if c.KeyHash == "" && c.Issued == nil { // no machine has used it
		disenrol(&n, x.key)
	}
	if slices.Contains(n.Joining, x.key) {
		n.Joining = slices.DeleteFunc(slices.Clone(n.Joining), func(k string) bool { return k == x.key })
		return s.Store.Nodes.Put(v, x.node.Key, n)
	}
	if n.Credential != x.key {
		return nil
	}
	n.Credential, n.Ended = "", Told(c).End()
	if n.State == api.Creating || n.State == api.Updating {
		n.State, n.Reason = ended(n), "its credential was revoked before it could be made"
	}
	return s.Store.Nodes.Put(v, x.node.Key, n)
}

// endNode ends the wait of a node for a credential that cannot be made any more, and removes its
// reference.
func (s *Service) endNode(v *store.View, x subject) error {
	n := x.node.Value
	if !x.wanted || n.State != api.Creating && n.State != api.Updating {
		return nil
	}
	disenrol(&n, x.key)
	n.State, n.Credential, n.Ended = ended(n), "", Told(x.row.Value).End()
	n.Reason = "a credential could not be made before it expired; POST regenerateToken makes another"
	if x.row.Value.Problem != "" {
		n.Reason += ". " + x.row.Value.Problem
	}
	return s.Store.Nodes.Put(v, x.node.Key, n)
}

// ended returns the state of a node whose wait for a credential has ended without one. A node with
// a configuration is as desired, and may run.
func ended(n flexnode.Node) string {
	if n.Revision != 0 {
		return ""
	}
	return api.Failed
}

// RemoveNode deletes a node within a change, with all its rows: its credentials are revoked, even
// while a machine joins with one, and a tombstone is written. wipe has the node's machine
// unbootstrap. It is a no-op for a missing node. It writes at most ten rows, and two for each of
// its credentials that machines still join with.
func (s *Service) RemoveNode(v *store.View, key string, wipe bool, at time.Time) error {
	row := s.Store.Nodes.Row(v, key)
	if !row.Exists() {
		return nil
	}
	n := row.Value
	for _, credential := range append(slices.Clone(n.Joining), n.Credential) {
		v.Fail(s.Revoke(v, credential, true))
	}
	if n.Chosen.PodCIDR != "" { // it is free, if it is still this node's
		cluster := s.Store.Clusters.Row(v, flexnode.ClusterOf(key))
		slot := flexnode.SlotOf(cluster.Key, cluster.Value.Properties.PodCIDR, n.Chosen.PodCIDR)
		if slot != "" && s.Store.PodCIDRs.Row(v, slot).Value == key {
			s.Store.PodCIDRs.Delete(v, slot)
		}
	}
	unused := !n.Used && n.MachineKey == "" && !s.Store.Status.Row(v, key).Exists()
	s.Store.Nodes.Delete(v, key)
	s.Store.Status.Delete(v, key)
	s.Store.History.Delete(v, key)
	s.Store.Diagnoses.Delete(v, key)
	s.Store.Secrets.Delete(v, key)
	stone := flexnode.Tombstone{
		UID: n.UID, Revision: max(n.Revision, n.Floor), Identity: n.Identity,
		Former: n.Former, MachineKey: n.MachineKey, Unused: unused,
		Deleted: at.UTC().Truncate(time.Second), Wipe: wipe,
	}
	if n.Copied() {
		stone.Boot = n.Boots.Current
	}
	signed, err := s.sign(tombstone(stone), s.Store.Epoch(v))
	v.Fail(err)
	stone.Signed = signed
	return s.Store.AddTombstone(v, key, stone)
}

// AfterRestore revokes the credentials that are usable according to a restored backup, with their
// enrolment secrets: they may have been used since it was made. These are of an earlier epoch than
// the store's, so every replica may call it at each start, and it may be interrupted.
func (s *Service) AfterRestore(ctx context.Context) error {
	epoch, err := s.Store.ReadEpoch(ctx)
	if err != nil || epoch == 1 {
		return err
	}
	rows, _, err := s.Store.Credentials.List(ctx, "")
	if err != nil {
		return err
	}
	var errs []error
	for _, row := range rows {
		if !uncertain(row.Value, epoch) {
			continue
		}
		_, err := s.Store.Update(ctx, "credential revoked", nil, func(v *store.View) error {
			if x := s.in(v, row.Key); uncertain(x.row.Value, epoch) {
				n := x.node.Value
				disenrol(&n, row.Key)
				v.Fail(s.Store.Nodes.Replace(v, x.node.Key, x.node.Value, n))
				return s.move(v, row.Key, x.row.Value, store.Revoking)
			}
			return nil
		})
		if err == nil {
			s.Audit.Warn("credential from before the restore revoked", "credential", row.Key, "epoch", epoch)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// uncertain reports whether a credential may have been used without a trace in the store.
func uncertain(c store.Credential, epoch int64) bool {
	return max(c.Epoch, 1) < epoch && (c.State == store.Pending || c.State == store.Live)
}
