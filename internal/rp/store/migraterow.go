package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// The rows of the release before, as far as they are others than ours.
type (
	formerNode struct {
		ID       string      `json:"id"`
		Desired  api.Desired `json:"desired"`
		Resolved struct {
			Facts    string       `json:"facts"`
			Versions api.Versions `json:"versions"`
			PodCIDR  string       `json:"podCIDR"`
		} `json:"resolved"`
		Version    string         `json:"version"`
		State      string         `json:"state"`
		Credential string         `json:"credential"`
		SystemData api.SystemData `json:"systemData"`
	}
	formerCluster struct {
		ID         string                `json:"id"`
		Location   string                `json:"location"`
		Tags       map[string]string     `json:"tags"`
		Properties api.ClusterProperties `json:"properties"`
		Facts      string                `json:"facts"`
		Version    string                `json:"version"`
		SystemData api.SystemData        `json:"systemData"`
	}
	formerTombstone struct {
		ID      string    `json:"id"`
		Version string    `json:"version"`
		Agent   string    `json:"agent"`
		Deleted time.Time `json:"deleted"`
	}
	formerFacts = flexnode.Facts
)

// Where they were.
const (
	formerNodes         = former + "i/nodes/"
	formerStatus        = former + "i/status/"
	formerClusters      = former + "i/clusters/"
	formerSubscriptions = former + "i/subscriptions/"
	formerFactsRows     = former + "s/facts/"
	formerSecrets       = former + "s/secrets/"
	formerCredentials   = former + "s/credentials/"
)

// step is a table of former rows: which other rows a page of it needs, and what becomes of a row.
type step struct {
	table string
	need  func(key string, value []byte) []string
	make  func(context.Context, *View, related, string, []byte) error
	w     *migrator
}

// related is the former rows that a page needs, by their whole keys.
type related map[string]KV

func (s step) prefix() string { return former + s.table }

// read reads what a page needs.
func (s step) read(ctx context.Context, page []KV) (related, error) {
	var keys []string
	for _, kv := range page {
		keys = append(keys, s.need(strings.TrimPrefix(kv.Key, s.prefix()), kv.Value)...)
	}
	got, _, err := s.w.store.Read(ctx, keys...)
	return got, err
}

// row is what becomes of a former row.
func (s step) row(ctx context.Context, rows related, kv KV) ([]Write, error) {
	v := &View{ctx: ctx, store: s.w.store, read: map[string]KV{}, known: map[string]bool{},
		writes: map[string]Write{}}
	err := s.make(ctx, v, rows, strings.TrimPrefix(kv.Key, s.prefix()), kv.Value)
	var writes []Write
	for _, key := range v.order {
		writes = append(writes, v.writes[key])
	}
	return writes, err
}

// steps are the tables in the order in which they are migrated. Facts become layers with the
// clusters and nodes that refer to them.
func (w *migrator) steps() []step {
	none := func(string, []byte) []string { return nil }
	own := func(key string, _ []byte) []string { return []string{formerNodes + key} }
	return []step{
		{"i/subscriptions/", none, w.subscription, w},
		{"i/clusters/", none, w.cluster, w},
		{"i/nodes/", func(key string, _ []byte) []string {
			return []string{formerSecrets + key, formerStatus + key}
		}, w.node, w},
		{"i/status/", own, w.status, w},
		{"s/secrets/", own, w.secret, w},
		{"s/credentials/", nodeOfCredential, w.credential, w},
		{"s/tokens/", none, w.token, w},
		{"s/bundles/", func(key string, _ []byte) []string {
			return []string{formerCredentials + key}
		}, w.bundle, w},
		{"s/podcidrs/", nodeOfSubnet, w.podCIDR, w},
		{"s/tombstones/", none, w.tombstone, w},
	}
}

func (w *migrator) subscription(
	_ context.Context, v *View, _ related, key string, data []byte,
) error {
	same := func(*flexnode.Subscription) error { return nil }
	return carry(v, w.store.Subscriptions, key, data, same)
}

// carry writes a former row whose form is ours, after a change.
func carry[T any](v *View, t Table[T], key string, data []byte, change func(*T) error) error {
	var value T
	if err := json.Unmarshal(data, &value); err != nil {
		return err
	}
	if err := change(&value); err != nil {
		return err
	}
	return t.Set(v, key, value)
}

func (w *migrator) cluster(ctx context.Context, v *View, _ related, key string, data []byte) error {
	var c formerCluster
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	facts, err := w.layer(ctx, v, c.Facts, c.ID)
	if err != nil {
		return err
	}
	return w.store.Clusters.Set(v, key, flexnode.Cluster{
		ID: c.ID, UID: uidOf(key, c.SystemData), Location: c.Location, Tags: c.Tags,
		Properties: c.Properties, Facts: facts, Version: c.Version, SystemData: c.SystemData,
	})
}

// uidOf is the uid of what had none. It is made of what tells it from another of the same name, so
// that a migration that goes on gives it no second one.
func uidOf(key string, s api.SystemData) string {
	const space = "5b0f6f1e-7c53-4a86-9d8f-3f2f2c6d1c0a"
	name := key + " " + s.CreatedAt.UTC().Format(time.RFC3339Nano)
	return uuid.NewSHA1(uuid.MustParse(space), []byte(name)).String()
}

// layer writes the layer of facts that nodes of a cluster are told, and returns its id; "" of none.
func (w *migrator) layer(ctx context.Context, v *View, facts, clusterID string) (string, error) {
	if facts == "" {
		return "", nil
	}
	f, err := w.factsOf(ctx, facts)
	if err != nil {
		return "", err
	}
	layer := flexnode.FactsLayer(f, clusterID)
	return layer.ID, w.store.Layers.Set(v, layer.ID, layer.Text)
}

func (w *migrator) factsOf(ctx context.Context, id string) (formerFacts, error) {
	if f, known := w.facts[id]; known {
		return f, nil
	}
	f, found, err := one[formerFacts](ctx, w.store, formerFactsRows+id)
	if err == nil && !found {
		err = fmt.Errorf("the facts %s of its cluster are missing", id)
	}
	if err == nil {
		w.facts[id] = f
	}
	return f, err
}

// one reads a former row.
func one[T any](ctx context.Context, s *Store, key string) (value T, found bool, err error) {
	got, _, err := s.Read(ctx, key)
	if err != nil || got[key].Revision == 0 {
		return value, false, err
	}
	return value, true, json.Unmarshal(got[key].Value, &value)
}

// parent is the former cluster of a key below one; one that is absent has no id.
func (w *migrator) parent(ctx context.Context, key string) (formerCluster, error) {
	at := flexnode.ClusterOf(key)
	if c, known := w.clusters[at]; known {
		return c, nil
	}
	c, _, err := one[formerCluster](ctx, w.store, formerClusters+at)
	if err == nil {
		w.clusters[at] = c
	}
	return c, err
}

// tenant is that of the subscription of a key.
func (w *migrator) tenant(ctx context.Context, key string) (string, error) {
	id, _, _ := strings.Cut(key, "/")
	if t, known := w.tenants[id]; known {
		return t, nil
	}
	s, _, err := one[flexnode.Subscription](ctx, w.store, formerSubscriptions+id)
	if err != nil {
		return "", err
	}
	var properties struct {
		TenantID string `json:"tenantId"`
	}
	w.tenants[id] = w.TenantID
	if json.Unmarshal(s.Properties, &properties) == nil && properties.TenantID != "" {
		w.tenants[id] = properties.TenantID
	}
	return w.tenants[id], nil
}
