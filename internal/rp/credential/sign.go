package credential

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/signing"
)

// Sign signs a new revision of the node with a uid within a change. If it takes settings from a
// stored revision, nil for none, that must verify: otherwise the provider would sign content that
// another program has written to its store.
func (s *Service) Sign(v *store.View, uid string, r, from *flexnode.Revision) error {
	if from != nil {
		said, err := s.statement(v.Context(), uid, *from)
		if err == nil {
			err = s.verify(from.Signed, said)
		}
		if err != nil {
			return fmt.Errorf("cannot sign configuration %d of the node %s: %w", r.Version, uid, err)
		}
	}
	said, err := s.statement(v.Context(), uid, *r)
	if err == nil {
		r.Signed, err = s.sign(said, s.Store.Epoch(v))
	}
	return err
}

// Signature returns a stored signature in the form for agents, and its epoch; nil for none.
func (s *Service) Signature(of *flexnode.Signed) (epoch int64, shown *api.Signature) {
	if of == nil {
		return 0, nil
	}
	return of.Epoch, &api.Signature{
		Time: time.Unix(of.Time, 0).UTC(), Signature: of.Signature,
		Certificate: s.Keys.Certificates[of.Key],
	}
}

// statement returns the statement of a revision of the node with a uid.
func (s *Service) statement(
	ctx context.Context, uid string, r flexnode.Revision,
) (signing.Statement, error) {
	content, err := s.Store.Content(ctx, r)
	if err != nil {
		return signing.Statement{}, err
	}
	return signing.Statement{
		Kind: signing.Revision, UID: uid, Version: strconv.FormatInt(r.Version, 10),
		Content: content,
	}, nil
}

func tombstone(stone flexnode.Tombstone) signing.Statement {
	return signing.Statement{
		Kind: signing.Tombstone, UID: stone.UID, Version: strconv.FormatInt(stone.Revision, 10),
		Content: []byte(stone.Deleted.Format(time.RFC3339Nano)),
	}
}

func (s *Service) sign(said signing.Statement, epoch int64) (*flexnode.Signed, error) {
	said.Epoch, said.Time = epoch, s.now()
	key, signature, err := s.Keys.Sign(said)
	if err != nil {
		return nil, err
	}
	return &flexnode.Signed{Epoch: epoch, Time: said.Time.Unix(), Key: key, Signature: signature}, nil
}

// verify returns an error unless a key of the ring, or a former one, has signed a statement.
func (s *Service) verify(by *flexnode.Signed, said signing.Statement) error {
	if by == nil {
		return errors.New("what is stored is not signed")
	}
	said.Epoch, said.Time = by.Epoch, time.Unix(by.Time, 0)
	return s.Keys.Verify(by.Key, by.Signature, said)
}

// signedRow is the row of Meta with the key and epoch in which everything was signed again.
const signedRow = "signed"

// SignAgain signs again the revisions and tombstones of a store that were signed by another key
// than the first of a ring, or in an earlier epoch. It returns the number of rows that it has
// written. A row that was changed since it was signed remains, and is an error; with accept it is
// signed too. The provider may run meanwhile.
func SignAgain(
	ctx context.Context, st *store.Store, keys seal.Ring, now time.Time, accept bool,
) (rows int, err error) {
	s := &Service{Store: st, Keys: keys, Now: func() time.Time { return now }}
	epoch, err := st.ReadEpoch(ctx)
	done, err2 := st.Meta.Get(ctx, signedRow)
	mark := fmt.Appendf(nil, "%q", fmt.Sprintf("%s in epoch %d", keys.Keys[0].ID, epoch))
	if err = errors.Join(err, err2); err != nil || bytes.Equal(done.Value, mark) && !accept {
		return 0, err
	}
	a := &again{Service: s, epoch: epoch, accept: accept}
	histories, err := signRows(ctx, a, st.History, func(
		v *store.View, row store.Row[flexnode.History],
	) (flexnode.History, bool, error) {
		node := st.Nodes.Row(v, row.Key)
		if !node.Exists() {
			return row.Value, false, nil
		}
		return row.Value.Sign(func(r flexnode.Revision) *flexnode.Signed {
			said, err := s.statement(ctx, node.Value.UID, r)
			return a.sign(r.Signed, said, err)
		})
	})
	stones, failed := signRows(ctx, a, st.Tombstones, func(
		_ *store.View, row store.Row[flexnode.Tombstones],
	) (flexnode.Tombstones, bool, error) {
		return row.Value.Sign(func(stone flexnode.Tombstone) *flexnode.Signed {
			return a.sign(stone.Signed, tombstone(stone), nil)
		})
	})
	if err = errors.Join(err, failed); err == nil {
		_, err = st.Update(ctx, "all signed again", nil, func(v *store.View) error {
			return st.Meta.Put(v, signedRow, mark)
		})
	}
	return histories + stones, err
}

// again signs statements again in an epoch.
type again struct {
	*Service
	epoch  int64
	accept bool    // also those that do not verify
	wrong  []error // of the present row
}

// sign signs a statement, if it could be made. It returns nil if the first key of the ring has
// signed it in the epoch, or if it does not verify.
func (a *again) sign(by *flexnode.Signed, said signing.Statement, err error) *flexnode.Signed {
	signed := by != nil && by.Key == a.Keys.Keys[0].ID && by.Epoch == a.epoch
	if err == nil && signed && !a.accept {
		return nil
	}
	if err == nil && !a.accept {
		if err = a.verify(by, said); err != nil {
			err = fmt.Errorf("cannot sign the %s %s of the node %s again: %w", said.Kind, said.Version,
				said.UID, err)
		}
	}
	var next *flexnode.Signed
	if err == nil {
		next, err = a.Service.sign(said, a.epoch)
	}
	a.wrong = append(a.wrong, err)
	return next
}

// signRows writes the rows that decide changes in a table, and returns their number. A statement
// that cannot be signed does not stop the write of its row or of others.
func signRows[T any](
	ctx context.Context, a *again, table store.Table[T],
	decide func(*store.View, store.Row[T]) (next T, changed bool, err error),
) (rows int, err error) {
	keys, err := table.Keys(ctx, "")
	errs := []error{err}
	for _, key := range keys {
		a.wrong = nil
		revision, err := a.Store.Update(ctx, "signed again", nil, func(v *store.View) error {
			a.wrong = nil
			row := table.Row(v, key)
			if !row.Exists() {
				return nil
			}
			next, changed, err := decide(v, row)
			if a.wrong = append(a.wrong, err); changed {
				return table.Put(v, key, next)
			}
			return nil
		})
		if err == nil && revision != 0 {
			rows++
		}
		errs = append(append(errs, err), a.wrong...)
		if ctx.Err() != nil {
			break
		}
	}
	return rows, errors.Join(errs...)
}
