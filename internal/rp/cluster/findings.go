package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// noteFindings writes the findings of a probe. The API server becomes this registration's; if it is
// another's, this registration fails.
func (w *worker) noteFindings(ctx context.Context, s *session, f findings) error {
	var refused error
	ahead := []string{w.Store.Clusters.Key(w.key), w.Store.APIServers.Key(f.server)}
	err := w.update(ctx, "cluster probed", ahead, func(v *store.View) error {
		refused = nil
		row := w.Store.Clusters.Row(v, w.key)
		if !row.Exists() || row.Value.UID != s.registration {
			return errGone
		}
		next := row.Value
		var err error
		refused, err = w.claimAPIServer(v, &next, f.server)
		if err == nil && refused == nil && !next.Deleting() {
			next.Properties.KubernetesVersion, next.Probe.Warnings = f.version, f.warnings
			if w.gone.Load() {
				next.Probe.Warnings = append(slices.Clone(f.warnings), notInAzure)
			}
			err = w.putFacts(v, s, &next, f)
		}
		next.Probe.Unreachable = ""
		if usable := refused == nil; next.Properties.Reachable != usable {
			next.Properties.Reachable, next.Probe.Since = usable, time.Now().UTC()
		}
		if err != nil || reflect.DeepEqual(next, row.Value) {
			return err
		}
		return w.Store.Clusters.Put(v, w.key, next)
	})
	if err == nil && refused != nil {
		w.Audit.Warn("registration refused", "cluster", w.key, slog.Any("error", refused))
	}
	return errors.Join(err, refused)
}

// claimAPIServer claims an API server for the registration. refused is the reason that it cannot.
func (w *worker) claimAPIServer(
	v *store.View, c *flexnode.Cluster, server string,
) (refused, err error) {
	holder := w.Store.APIServers.Row(v, server)
	if holder.Value != w.key {
		// Otherwise the other registration has ended.
		if holder.Exists() && w.Store.Clusters.Row(v, holder.Value).Exists() {
			c.Properties.ProvisioningState = api.Failed
			c.Probe.Refused = "The API server already belongs to another registration. Delete one of " +
				"the two, or correct the kubeconfig."
			return fmt.Errorf("cannot register the cluster: %w", errRefused), nil
		}
		err = w.Store.APIServers.Put(v, server, w.key)
	}
	if c.APIServer != server {
		w.giveBack(v, c.APIServer)
	}
	c.APIServer, c.Probe.Refused, c.Properties.ProvisioningState = server, "", ""
	return nil, err
}

// giveBack deletes the row that assigns an API server to this registration, if it does; "" is no
// API server.
func (w *worker) giveBack(v *store.View, server string) {
	if server != "" && w.Store.APIServers.Row(v, server).Value == w.key {
		w.Store.APIServers.Delete(v, server)
	}
}

// putFacts points the registration to the facts that its nodes receive now.
func (w *worker) putFacts(v *store.View, s *session, c *flexnode.Cluster, f findings) error {
	id, err := arm.Parse(c.ID)
	if err != nil {
		return err
	}
	facts := s.connection.facts(*c, f, w.tenantOf(v, id.Subscription))
	if facts.DNSServiceIP == "" {
		c.Probe.Warnings = append(slices.Clone(c.Probe.Warnings), flexnode.NoDNS)
	}
	layer := flexnode.FactsLayer(facts, c.ID)
	c.Facts = layer.ID
	return w.Store.KeepLayer(v, layer)
}

// tenantOf returns the tenant of a subscription, as ARM reported it.
func (w *worker) tenantOf(v *store.View, subscription string) string {
	row := w.Store.Subscriptions.Row(v, arm.Fold(subscription))
	var properties struct {
		TenantID string `json:"tenantId"`
	}
	if json.Unmarshal(row.Value.Properties, &properties) != nil {
		return w.TenantID
	}
	return cmp.Or(properties.TenantID, w.TenantID)
}
