package rp

import (
	"context"

	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	store "github.com/Azure/AKSFlexNode/internal/rp/oldstore"
)

// Rewrap seals again what is sealed under an older key, so that that key can be dropped. It returns how many boxes there were.
func (s *Server) Rewrap(ctx context.Context) (int, error) {
	n := 0
	for _, table := range []struct {
		rows  store.Table[store.Sealed]
		about string
	}{{s.Store.Secrets, "secrets/"}, {s.Store.Bundles, "bundles/"}} {
		rows, err := table.rows.List(ctx, "")
		if err != nil {
			return n, err
		}
		for _, row := range rows {
			box, old, err := s.reseal(table.about+row.Key, row.Value.Box)
			if err != nil || !old {
				if err != nil {
					return n, err
				}
				continue
			}
			txn := s.Store.Txn()
			table.rows.Put(txn, row, store.Sealed{Box: box, Expires: row.Value.Expires})
			if _, err := txn.Commit(ctx); ignoreConflict(err) != nil {
				return n, err
			}
			n++
		}
	}
	tokens, err := s.rewrapTokens(ctx)
	return n + tokens, err
}

func (s *Server) rewrapTokens(ctx context.Context) (int, error) {
	rows, err := s.Store.Credentials.List(ctx, "")
	n := 0
	for _, row := range rows {
		if row.Value.Secret == nil {
			continue
		}
		box, old, err := s.reseal("credentials/"+row.Key, *row.Value.Secret)
		if err != nil {
			return n, err
		}
		if !old {
			continue
		}
		next := row.Value
		next.Secret = &box
		txn := s.Store.Txn()
		s.Store.Credentials.Put(txn, row, next)
		if _, err := txn.Commit(ctx); ignoreConflict(err) != nil {
			return n, err
		}
		n++
	}
	return n, err
}

// reseal opens a box and closes it with the first key, if it was another's.
func (s *Server) reseal(about string, b seal.Box) (seal.Box, bool, error) {
	if s.Keys.Current(b) {
		return b, false, nil
	}
	content, err := s.Keys.Open(about, b)
	if err != nil {
		return b, false, err
	}
	b, err = s.Keys.Seal(about, content)
	return b, true, err
}
