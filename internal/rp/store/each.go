package store

import (
	"context"
	"errors"
	"fmt"
)

// Each is one change of rows for each of many keys (UpdateEach).
type Each struct {
	// What names each transaction for Store.Did.
	What string
	// Ahead are the keys that are read together for a key; it may be nil.
	Ahead func(key string) []string
	// One decides for a key, as the function of Update does.
	One func(v *View, key string) error
}

// UpdateEach makes a change for each key, in their order and each in a transaction of its own. A
// key whose change fails by itself, or is too large, keeps no other from its change; the error has
// all of them. It ends when the store cannot be read or written, or a fence does not hold. done is
// how many changes were made.
func (s *Store) UpdateEach(ctx context.Context, keys []string, e Each) (done int, err error) {
	var errs []error
	for _, key := range keys {
		var ahead []string
		if e.Ahead != nil {
			ahead = e.Ahead(key)
		}
		own := false // the error is of this key alone
		_, err := s.Update(ctx, e.What, ahead, func(v *View) error {
			err := v.outcome(e.One(v, key))
			own = err != nil && !v.broken
			return err
		})
		switch {
		case err == nil:
			done++
		case ctx.Err() == nil && own:
			errs = append(errs, err)
		case errors.Is(err, ErrTooLarge):
			errs = append(errs, fmt.Errorf("cannot change %s: %w", key, err))
		default:
			return done, errors.Join(append(errs, err)...)
		}
	}
	return done, errors.Join(errs...)
}
