package credential

import (
	"context"
	"errors"
	"fmt"

	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// Boxes counts what is sealed in a store, by id of the key.
func Boxes(ctx context.Context, st *store.Store) (map[string]int, error) {
	counts := map[string]int{}
	err := eachBox(ctx, st, func(b box) error {
		counts[b.seal.Key]++
		return nil
	})
	return counts, err
}

// Rewrap seals again what is sealed with another key than the first of a ring, until nothing is. It
// returns how many boxes it has sealed. The provider may run meanwhile.
func Rewrap(ctx context.Context, st *store.Store, keys seal.Ring) (int, error) {
	total := 0
	for {
		n, left := 0, 0
		err := eachBox(ctx, st, func(b box) error {
			if keys.Current(b.seal) {
				return nil
			}
			left++
			done, err := b.rewrap(ctx, st, keys)
			if done {
				n++
			}
			return err
		})
		total += n
		if err != nil || left == 0 {
			return total, err
		}
	}
}

// OpenAll opens all that is sealed in a store with the keys of a ring, and counts it by id of the
// key. bad is told of each box that does not open.
func OpenAll(
	ctx context.Context, st *store.Store, keys seal.Ring, bad func(error),
) (map[string]int, error) {
	counts := map[string]int{}
	err := eachBox(ctx, st, func(b box) error {
		counts[b.seal.Key]++
		if _, err := keys.Open(b.about, b.seal); err != nil {
			bad(fmt.Errorf("%s: %w", b.about, err))
		}
		return nil
	})
	return counts, err
}

// box is one that was found in a store.
type box struct {
	seal   seal.Box
	about  string // what it belongs to
	rewrap func(context.Context, *store.Store, seal.Ring) (bool, error)
}

// eachBox calls a function with all boxes of a store; its errors do not end it.
func eachBox(ctx context.Context, st *store.Store, see func(box) error) error {
	var errs []error
	for _, t := range []struct {
		rows  store.Table[store.Sealed]
		about string
	}{{st.Secrets, secretSeal}, {st.Bundles, bundleSeal}} {
		rows, _, err := t.rows.List(ctx, "")
		if err != nil {
			return err
		}
		for _, row := range rows {
			errs = append(errs, see(sealedBox(t.rows, t.about, row)))
		}
	}
	rows, _, err := st.Credentials.List(ctx, "")
	if err != nil {
		return err
	}
	for _, row := range rows {
		if row.Value.Secret != nil {
			errs = append(errs, see(tokenBox(row)))
		}
	}
	return errors.Join(errs...)
}

func sealedBox(t store.Table[store.Sealed], about string, row store.Row[store.Sealed]) box {
	return box{row.Value.Box, about + row.Key, func(
		ctx context.Context, st *store.Store, keys seal.Ring,
	) (done bool, err error) {
		_, err = st.Update(ctx, "sealed again", nil, func(v *store.View) error {
			done = false
			now, err := t.In(v, row.Key)
			if err != nil || !now.Exists() || keys.Current(now.Value.Box) {
				return err
			}
			next := now.Value
			if next.Box, err = keys.Rewrap(about+row.Key, next.Box); err != nil {
				return err
			}
			done = true
			return t.Put(v, row.Key, next)
		})
		return done, err
	}}
}

func tokenBox(row store.Row[store.Credential]) box {
	return box{*row.Value.Secret, tokenSeal + row.Key, func(
		ctx context.Context, st *store.Store, keys seal.Ring,
	) (done bool, err error) {
		_, err = st.Update(ctx, "sealed again", nil, func(v *store.View) error {
			done = false
			now, err := st.Credentials.In(v, row.Key)
			if err != nil || now.Value.Secret == nil || keys.Current(*now.Value.Secret) {
				return err
			}
			next := now.Value
			sealed, err := keys.Rewrap(tokenSeal+row.Key, *next.Secret)
			if err != nil {
				return err
			}
			next.Secret, done = &sealed, true
			return st.Credentials.Put(v, row.Key, next)
		})
		return done, err
	}}
}
