package credential

import (
	"context"
	"errors"

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// AfterRestore revokes the credentials that a restored backup says to be usable: they may have been
// used since it was made. Those are the ones of an earlier epoch than the store's, so it may be
// called at each start, by each replica, and be cut short.
func (s *Service) AfterRestore(ctx context.Context) error {
	epoch := int64(0)
	_, err := s.Store.Update(ctx, "", nil, func(v *store.View) (err error) {
		epoch, err = s.Store.Epoch(v)
		return err
	})
	if err != nil || epoch == 1 {
		return err
	}
	rows, _, err := s.Store.Credentials.List(ctx, "")
	if err != nil {
		return err
	}
	var errs []error
	for _, row := range rows {
		if uncertain(row.Value, epoch) {
			errs = append(errs, s.revokeUncertain(ctx, row.Key, epoch))
		}
	}
	return errors.Join(errs...)
}

// uncertain reports whether a credential may have been used without the store knowing it.
func uncertain(c store.Credential, epoch int64) bool {
	return max(c.Epoch, 1) < epoch && (c.State == store.Pending || c.State == store.Live)
}

func (s *Service) revokeUncertain(ctx context.Context, key string, epoch int64) error {
	_, err := s.Store.Update(ctx, "credential revoked", nil, func(v *store.View) error {
		x := s.in(v, key)
		if !x.row.Exists() || !uncertain(x.row.Value, epoch) {
			return nil
		}
		return s.move(v, key, x.row.Value, store.Revoking)
	})
	if err == nil {
		s.Audit.Warn("credential from before the restore revoked", "credential", key, "epoch", epoch)
	}
	return err
}
