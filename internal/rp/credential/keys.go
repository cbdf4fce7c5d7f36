package credential

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// Boxes counts the boxes in a store, by id of the key.
func Boxes(ctx context.Context, st *store.Store) (map[string]int, error) {
	return OpenAll(ctx, st, nil, nil)
}

// Rewrap seals again the boxes that are sealed with another key than the first of a ring, until
// none is left. It returns the number of boxes that it has sealed. The provider may run meanwhile.
// The next SignAgain looks at all rows: a replica may have signed with an older key since the last.
func Rewrap(ctx context.Context, st *store.Store, keys seal.Ring) (int, error) {
	total := 0
	_, err := st.Update(ctx, "to be signed again", nil, func(v *store.View) error {
		st.Meta.Delete(v, signedRow)
		return nil
	})
	for {
		left := 0
		err = cmp.Or(err, eachBox(ctx, st, func(b box) error {
			if keys.Current(b.seal) {
				return nil
			}
			left++
			done, err := b.rewrap(keys)
			if done {
				total++
			}
			return err
		}))
		if err != nil || left == 0 {
			return total, err
		}
	}
}

// OpenAll opens all boxes in a store with the keys of a ring, nil for none, and counts them by id
// of the key. bad gets an error for each box that does not open.
func OpenAll(
	ctx context.Context, st *store.Store, keys *seal.Ring, bad func(error),
) (map[string]int, error) {
	counts := map[string]int{}
	err := eachBox(ctx, st, func(b box) error {
		counts[b.seal.Key]++
		if keys == nil {
			return nil
		}
		if _, err := keys.Open(b.about, b.seal); err != nil {
			bad(fmt.Errorf("%s: %w", b.about, err))
		}
		return nil
	})
	return counts, err
}

// box is a box that was found in a store.
type box struct {
	seal   seal.Box
	about  string // its owner
	rewrap func(seal.Ring) (bool, error)
}

// eachBox calls see with all boxes of a store; an error of it does not end that.
func eachBox(ctx context.Context, st *store.Store, see func(box) error) error {
	sealed := func(row *store.Sealed) *seal.Box { return &row.Box }
	return errors.Join(
		boxesIn(ctx, st, st.Secrets, secretSeal, sealed, see),
		boxesIn(ctx, st, st.Bundles, bundleSeal, sealed, see),
		boxesIn(ctx, st, st.ArcLeft, arcLeftSeal,
			func(row *store.ArcLeft) *seal.Box { return row.Secret }, see),
		boxesIn(ctx, st, st.Credentials, tokenSeal,
			func(row *store.Credential) *seal.Box { return row.Secret }, see))
}

// boxesIn is eachBox for the boxes of a table, whose rows have one or none.
func boxesIn[T any](
	ctx context.Context, st *store.Store, t store.Table[T], about string, of func(*T) *seal.Box,
	see func(box) error,
) error {
	rows, _, err := t.List(ctx, "")
	errs := []error{err}
	for _, row := range rows {
		found := of(&row.Value)
		if found == nil {
			continue
		}
		rewrap := func(keys seal.Ring) (done bool, err error) {
			revision, err := st.Update(ctx, "sealed again", nil, func(v *store.View) error {
				now := t.Row(v, row.Key)
				b := of(&now.Value)
				if !now.Exists() || b == nil || keys.Current(*b) {
					return nil
				}
				next, err := keys.Rewrap(about+row.Key, *b)
				if err != nil {
					return err
				}
				*b = next
				return t.Put(v, row.Key, now.Value)
			})
			return revision != 0, err
		}
		errs = append(errs, see(box{*found, about + row.Key, rewrap}))
	}
	return errors.Join(errs...)
}
