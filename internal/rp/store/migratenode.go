package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// node makes a former node into ours, with one revision: what it was served until now, under the
// same version. One that was being deleted becomes its tombstone.
func (w *migrator) node(ctx context.Context, v *View, rows related, key string, data []byte) error {
	var old formerNode
	if err := json.Unmarshal(data, &old); err != nil {
		return err
	}
	version, err := strconv.ParseInt(old.Version, 10, 64)
	if err != nil {
		return fmt.Errorf("its version is %q", old.Version)
	}
	n, err := w.newNode(ctx, key, old, rows)
	if err != nil {
		return err
	}
	if old.State == api.Deleting {
		return w.store.AddTombstone(v, key, flexnode.Tombstone{
			ID: n.ID, UID: n.UID, Revision: version, Identity: n.Identity, Deleted: w.Now,
			Wipe: true,
		})
	}
	if old.Resolved.Facts == "" { // its cluster was never reached
		n.Floor = version
		return w.store.Nodes.Set(v, key, n)
	}
	n.Revision, n.Assigned = version, version
	if err := w.history(ctx, v, key, old, &n); err != nil {
		return err
	}
	return w.store.Nodes.Set(v, key, n)
}

// newNode is a node without its revision.
func (w *migrator) newNode(
	ctx context.Context, key string, old formerNode, rows related,
) (flexnode.Node, error) {
	n := flexnode.Node{
		ID: old.ID, UID: uidOf(key, old.SystemData), Desired: old.Desired,
		Chosen: flexnode.Chosen{Versions: old.Resolved.Versions, PodCIDR: old.Resolved.PodCIDR},
		State:  old.State, Credential: old.Credential, SystemData: old.SystemData,
	}
	tenant, err := w.tenant(ctx, key)
	if err != nil {
		return n, err
	}
	if old.Resolved.Facts != "" {
		facts, err := w.factsOf(ctx, old.Resolved.Facts)
		if err != nil {
			return n, err
		}
		tenant = facts.TenantID
	}
	n.Identity = flexnode.IdentityOf(n.ID, n.Desired, tenant)
	if rows[formerSecrets+key].Revision != 0 {
		n.SecretVersion = 1
	}
	if n.State == api.Failed {
		n.Reason = reasonOf(rows[formerStatus+key].Value)
	}
	return n, nil
}

// reasonOf is why a node is Failed, which was a condition in its status.
func reasonOf(data []byte) string {
	var s flexnode.Status
	if len(data) == 0 || json.Unmarshal(data, &s) != nil {
		return ""
	}
	for _, c := range slices.Backward(s.Report.Conditions) {
		if unresolved(c) {
			return c.Message
		}
	}
	return ""
}

func unresolved(c api.Condition) bool { return c.Type == "Resolved" && c.Reason == "VersionSkew" }

// history renders a node as the release before has for each answer. Its facts layer has the casing
// of the node's id; the node counts as rendered with its cluster's all the same, so that it is not
// rendered again because of that.
func (w *migrator) history(
	ctx context.Context, v *View, key string, old formerNode, n *flexnode.Node,
) error {
	facts, err := w.layer(ctx, v, old.Resolved.Facts, parentID(n.ID))
	if err != nil {
		return err
	}
	n.Facts = facts
	if c, err := w.parent(ctx, key); err != nil {
		return err
	} else if c.ID != "" && c.Facts == old.Resolved.Facts {
		f := w.facts[c.Facts]
		n.Facts = flexnode.FactsLayer(f, c.ID).ID
	}
	r := flexnode.Revision{
		Version: n.Revision, Facts: facts, Own: flexnode.OwnLayer(*n),
		SecretVersion: n.SecretVersion, Created: n.SystemData.LastModifiedAt,
		By: n.SystemData.LastModifiedBy, Why: "migration", Renderer: w.Renderer,
		Desired: &n.Desired,
	}
	if layer := flexnode.OperatorLayer(w.Defaults); layer != nil {
		r.Defaults = layer.ID
		if err := w.store.Layers.Set(v, layer.ID, layer.Text); err != nil {
			return err
		}
	}
	return w.store.History.Set(v, key, flexnode.History{}.With(r, r.Version))
}

// parentID is the id of the cluster that a node's id lies below, in the same casing.
func parentID(nodeID string) string {
	for range 2 {
		nodeID = nodeID[:max(0, strings.LastIndexByte(nodeID, '/'))]
	}
	return nodeID
}

// lives reports whether a node was there and was not being deleted.
func (rows related) lives(key string) (formerNode, bool) {
	var n formerNode
	row := rows[formerNodes+key]
	if row.Revision == 0 || json.Unmarshal(row.Value, &n) != nil || n.State == api.Deleting {
		return formerNode{}, false
	}
	return n, true
}

// status keeps what is said of a node that is there. When it was last seen is kept elsewhere now,
// and is known again after a poll.
func (w *migrator) status(_ context.Context, v *View, rows related, key string, data []byte) error {
	if _, lives := rows.lives(key); !lives {
		return nil
	}
	return carry(v, w.store.Status, key, data, func(s *flexnode.Status) error {
		s.Report.Conditions = slices.DeleteFunc(s.Report.Conditions, unresolved)
		return nil
	})
}

// secret keeps the client secret of a node that is there. It is sealed for "secrets/" and the key,
// as before.
func (w *migrator) secret(_ context.Context, v *View, rows related, key string, data []byte) error {
	if _, lives := rows.lives(key); !lives {
		return nil
	}
	return carry(v, w.store.Secrets, key, data, func(s *Sealed) error {
		s.Version = 1
		return nil
	})
}

// credential keeps a credential unless its cluster is gone: nobody could revoke it.
func (w *migrator) credential(
	ctx context.Context, v *View, rows related, key string, data []byte,
) error {
	if c, err := w.parent(ctx, key); err != nil || c.ID == "" {
		return err
	}
	return carry(v, w.store.Credentials, key, data, func(c *Credential) (err error) {
		if n, lives := rows.lives(c.Node); lives && n.Credential == key {
			c.UID = uidOf(c.Node, n.SystemData)
			c.Config, err = strconv.ParseInt(n.Version, 10, 64)
		}
		return err
	})
}

func nodeOfCredential(_ string, value []byte) []string {
	var c Credential
	if json.Unmarshal(value, &c) != nil {
		return nil
	}
	return []string{formerNodes + c.Node}
}

func (w *migrator) token(ctx context.Context, v *View, _ related, key string, data []byte) error {
	if c, err := w.parent(ctx, key); err != nil || c.ID == "" {
		return err
	}
	return carry(v, w.store.Tokens, key, data, func(*string) error { return nil })
}

// bundle keeps what a URL hands out while its credential is live. It is sealed for "bundles/" and
// the key, as before.
func (w *migrator) bundle(
	ctx context.Context, v *View, rows related, key string, data []byte,
) error {
	var c Credential
	row := rows[formerCredentials+key]
	if row.Revision == 0 || json.Unmarshal(row.Value, &c) != nil || c.State != Live {
		return nil
	}
	if c, err := w.parent(ctx, key); err != nil || c.ID == "" {
		return err
	}
	return carry(v, w.store.Bundles, key, data, func(*Sealed) error { return nil })
}

// podCIDR keeps the subnet of a node that is there.
func (w *migrator) podCIDR(
	_ context.Context, v *View, rows related, key string, data []byte,
) error {
	var node string
	if err := json.Unmarshal(data, &node); err != nil {
		return err
	}
	if _, lives := rows.lives(node); !lives {
		return nil
	}
	return w.store.PodCIDRs.Set(v, key, node)
}

func nodeOfSubnet(_ string, value []byte) []string {
	var node string
	if json.Unmarshal(value, &node) != nil {
		return nil
	}
	return []string{formerNodes + node}
}

// tombstone keeps a tombstone. It gives the machine back if it is of a registration that is still
// there: the one of a registration that was deleted, or made again, may come of that deletion.
func (w *migrator) tombstone(
	ctx context.Context, v *View, _ related, key string, data []byte,
) error {
	var old formerTombstone
	if err := json.Unmarshal(data, &old); err != nil {
		return err
	}
	c, err := w.parent(ctx, key)
	if err != nil {
		return err
	}
	tenant, err := w.tenant(ctx, key)
	if err != nil {
		return err
	}
	version, err := strconv.ParseInt(old.Version, 10, 64)
	if err != nil {
		return fmt.Errorf("its version is %q", old.Version)
	}
	uid := uidOf(key, api.SystemData{CreatedAt: old.Deleted}) // which is all that is known of it
	return w.store.AddTombstone(v, key, flexnode.Tombstone{
		ID: old.ID, UID: uid, Revision: version, Identity: qualified(old.Agent, tenant),
		Deleted: old.Deleted, Wipe: c.ID != "" && c.SystemData.CreatedAt.Before(old.Deleted),
	})
}

// qualified is a former identity with its tenant, as flexnode.IdentityOf has it.
func qualified(agent, tenant string) string {
	kind, id, _ := strings.Cut(agent, ":")
	if kind == "app" || kind == "oid" {
		return kind + ":" + strings.ToLower(tenant) + "/" + id
	}
	return agent
}
