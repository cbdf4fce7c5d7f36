package credential

import (
	"context"
	"errors"
	"strconv"
	"time"

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
// read last. It follows the row, so that it ends as soon as that changes.
func (s *Service) Await(
	ctx context.Context, key string,
) (store.Row[store.Credential], error) {
	name := s.Store.Credentials.Key(key)
	var last store.Row[store.Credential]
	for {
		read, at, err := s.Store.Read(ctx, name)
		var row store.Row[store.Credential]
		if err == nil {
			row, err = s.Store.Credentials.Get(ctx, key)
		}
		switch {
		case err != nil && ctx.Err() != nil && last.Exists():
			return last, nil
		case err != nil || row.Value.State != store.Pending:
			return row, err
		}
		last = row
		if read[name].Revision == row.Revision {
			err = s.changed(ctx, name, at)
		}
		if ctx.Err() != nil {
			return last, nil
		}
		if err != nil && !errors.Is(err, store.ErrCompacted) {
			store.Pause(ctx, broken)
		}
	}
}

// broken is the pause after a broken connection to the store.
const broken = 200 * time.Millisecond

// changed returns when a row has changed after a revision, or ctx ends.
func (s *Service) changed(ctx context.Context, name string, after int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := false
	err := s.Store.Follow(ctx, name, after, func(b store.Batch) {
		if len(b.Events) > 0 {
			seen = true
			cancel()
		}
	})
	if seen {
		return nil
	}
	return err
}
