package credential

import (
	"context"
	"strconv"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// Delivery holds configurations for their machines, by key of their credential.
type Delivery interface {
	// Put delivers a configuration until a time, with the change of the view or, if that cannot be,
	// before it. version is its configVersion: an older one never replaces a newer one. It may be
	// called again for the same change.
	Put(v *store.View, key string, text []byte, version int64, expires time.Time) error
	// URL returns the URL where a machine gets it without any other credential.
	URL(key string, expires time.Time) (string, error)
	// Remove makes the URL useless for ever; it is a no-op for a missing one.
	Remove(ctx context.Context, key string) error
	// Sweep removes configurations without a credential. It leaves alone the keys of credentials for
	// which keep returns true.
	Sweep(ctx context.Context, keep func(key string) bool) error
}

// The owners of boxes: the beginning of the context that seal.Ring gets; the key follows.
const (
	tokenSeal   = "credentials/"
	secretSeal  = "secrets/"
	arcLeftSeal = "arcleft/"
	bundleSeal  = "bundles/"
)

// URL returns the URL of a credential, with the configVersion that it hands out; nil unless it is
// Live. key may be "".
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

// Await waits until a credential is no longer Pending, or ctx ends, and returns its row as last
// read.
func (s *Service) Await(ctx context.Context, key string) (store.Row[store.Credential], error) {
	return s.Store.Credentials.Wait(ctx, key, func(row store.Row[store.Credential]) bool {
		return row.Value.State != store.Pending
	})
}
