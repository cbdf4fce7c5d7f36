package credential

import (
	"context"
	"strconv"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
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
