package credential

import (
	"context"
	"strconv"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// Delivery is where configurations wait for their machines, by key of their credential.
type Delivery interface {
	// Put has a change deliver a configuration until a time: with it, or, where that cannot be,
	// before it. version is its configVersion: an older one never replaces a newer one. It may be
	// called again for the same change.
	Put(v *store.View, key string, text []byte, version int64, expires time.Time) error
	// URL is where a machine gets it without any other credential.
	URL(key string, expires time.Time) (string, error)
	// Remove makes the URL useless for ever; what is not there has been removed.
	Remove(ctx context.Context, key string) error
	// Sweep removes what no credential stands behind. It leaves the keys of credentials alone that
	// keep reports.
	Sweep(ctx context.Context, keep func(key string) bool) error
}

// What a box belongs to: the beginning of the context that seal.Ring gets; the key follows.
const (
	tokenSeal   = "credentials/"
	secretSeal  = "secrets/"
	arcLeftSeal = "arcleft/"
	bundleSeal  = "bundles/"
)

// URL is the URL of a credential, with the configVersion that it hands out; nil unless it is Live.
// key may be "".
func (s *Service) URL(ctx context.Context, key string) (*api.ConfigURL, error) {
	if key == "" {
		return nil, nil
	}
	row, err := s.Store.Credentials.Get(ctx, key)
	c := row.Value
	if err != nil || !row.Exists() || c.State != store.Live || !s.Now().Before(c.Expires) {
		return nil, err
	}
	url, err := s.Delivery.URL(key, c.Expires)
	if err != nil {
		return nil, err
	}
	return &api.ConfigURL{
		ConfigVersion: strconv.FormatInt(c.Config, 10), ConfigURL: url, ConfigURLExpires: c.Expires,
	}, nil
}

// Await waits until a credential is no longer Pending, or ctx ends, and returns its row as it was
// read last.
func (s *Service) Await(ctx context.Context, key string) (store.Row[store.Credential], error) {
	return s.Store.Credentials.Wait(ctx, key, func(row store.Row[store.Credential]) bool {
		return row.Value.State != store.Pending
	})
}
