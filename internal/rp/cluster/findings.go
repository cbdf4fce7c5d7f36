package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// noteFindings writes what a cluster has said. The API server becomes this registration's, unless
// it is another's: then this one has failed.
func (w *worker) noteFindings(ctx context.Context, s *session, f findings) error {
	var refused error
	ahead := []string{
		w.Store.Clusters.Key(w.key), w.Store.APIServers.Key(f.server),
		w.Store.Endpoints.Key(s.connection.endpoint),
	}
	_, err := w.Store.Update(ctx, "cluster probed", ahead, func(v *store.View) error {
		refused = nil
		v.Fence(w.owner.Fence())
		row, err := w.Store.Clusters.In(v, w.key)
		if err != nil {
			return err
		}
		if !row.Exists() || row.Value.UID != s.registration {
			return errGone
		}
		next := row.Value
		refused, err = w.claimAPIServer(v, &next, f.server)
		if err == nil && refused == nil {
			err = w.claimEndpoint(v, &next, s.connection.endpoint)
		}
		if err == nil && refused == nil && !next.Deleting() {
			next.Properties.KubernetesVersion, next.Probe.Warnings = f.version, f.warnings
			if w.gone.Load() {
				next.Probe.Warnings = append(slices.Clone(f.warnings), notInAzure)
			}
			err = w.putFacts(v, s, &next, f)
		}
		next.Probe.Unreachable = ""
		if usable := refused == nil; next.Properties.Reachable != usable {
			next.Properties.Reachable, next.Probe.Since = usable, w.Now().UTC()
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

// claimAPIServer has an API server belong to the registration. refused tells why it does not.
func (w *worker) claimAPIServer(
	v *store.View, c *flexnode.Cluster, server string,
) (refused, err error) {
	holder, err := w.Store.APIServers.In(v, server)
	if err != nil {
		return nil, err
	}
	if holder.Exists() && holder.Value != w.key {
		other, err := w.Store.Clusters.In(v, holder.Value)
		if err != nil {
			return nil, err
		}
		if other.Exists() { // else its registration has ended
			c.Properties.ProvisioningState = api.Failed
			c.Probe.Refused = "The API server belongs to another registration already. Delete " +
				"one of the two, or correct the kubeconfig."
			return fmt.Errorf("cannot register the cluster: %w", errRefused), nil
		}
	}
	if holder.Value != w.key {
		if err := w.Store.APIServers.Put(v, server, w.key); err != nil {
			return nil, err
		}
	}
	if c.APIServer != "" && c.APIServer != server {
		if err := w.giveBack(v, w.Store.APIServers, c.APIServer); err != nil {
			return nil, err
		}
	}
	c.APIServer, c.Probe.Refused, c.Properties.ProvisioningState = server, "", ""
	return nil, nil
}

// claimEndpoint writes where the API server of the registration was reached, so that another
// registration with the same kubeconfig is refused at once.
func (w *worker) claimEndpoint(v *store.View, c *flexnode.Cluster, endpoint string) error {
	if c.Endpoint != "" && c.Endpoint != endpoint {
		if err := w.giveBack(v, w.Store.Endpoints, c.Endpoint); err != nil {
			return err
		}
	}
	c.Endpoint = endpoint
	if endpoint == "" {
		return nil
	}
	holder, err := w.Store.Endpoints.In(v, endpoint)
	if err != nil || holder.Value == w.key {
		return err
	}
	return w.Store.Endpoints.Put(v, endpoint, w.key)
}

// giveBack deletes a row that says that something is this registration's, if it says so.
func (w *worker) giveBack(v *store.View, table store.Table[string], key string) error {
	holder, err := table.In(v, key)
	if err == nil && holder.Value == w.key {
		table.Delete(v, key)
	}
	return err
}

// putFacts has the registration refer to what its nodes are told now.
func (w *worker) putFacts(v *store.View, s *session, c *flexnode.Cluster, f findings) error {
	id, err := arm.Parse(c.ID)
	if err != nil {
		return err
	}
	tenant, err := w.tenantOf(v, id.Subscription)
	if err != nil {
		return err
	}
	facts := s.connection.facts(*c, f, tenant)
	if facts.DNSServiceIP == "" {
		c.Probe.Warnings = append(slices.Clone(c.Probe.Warnings), flexnode.NoDNS)
	}
	layer := flexnode.FactsLayer(facts, c.ID)
	c.Facts = layer.ID
	return w.Store.KeepLayer(v, layer)
}

// tenantOf is the tenant of a subscription, as ARM has told it.
func (w *worker) tenantOf(v *store.View, subscription string) (string, error) {
	row, err := w.Store.Subscriptions.In(v, arm.Fold(subscription))
	if err != nil {
		return "", err
	}
	var properties struct {
		TenantID string `json:"tenantId"`
	}
	if len(row.Value.Properties) > 0 &&
		json.Unmarshal(row.Value.Properties, &properties) == nil && properties.TenantID != "" {
		return properties.TenantID, nil
	}
	return w.TenantID, nil
}
