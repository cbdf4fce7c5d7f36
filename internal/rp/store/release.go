package store

import (
	"context"
	"fmt"
)

// OfNodes returns the prefixes of the rows of a cluster's nodes.
func (s *Store) OfNodes(cluster string) []string {
	below := cluster + "/"
	return []string{
		s.Nodes.Key(below), s.Status.Key(below), s.History.Key(below), s.Secrets.Key(below),
		s.PodCIDRs.Key(below), s.Diagnoses.Key(below), s.ArcLeft.Key(below),
		s.Credentials.Key(below), s.Bundles.Key(below), s.Tokens.Key(below), // written with the first
	}
}

// ReleaseCluster deletes the rows of a cluster and of its nodes, and the operation of its deletion;
// a full store accepts that, too. It writes no tombstone: machines run on, unmanaged. The cluster's
// row goes first, so that no node is added meanwhile. Another registration may claim its API
// server. It returns the number of deleted rows.
func (s *Store) ReleaseCluster(ctx context.Context, cluster string) (deleted int, err error) {
	if err := s.HoldSchema(ctx); err != nil {
		return 0, err
	}
	_, err = s.Update(ctx, "cluster released", nil, func(v *View) error {
		row := s.Clusters.Row(v, cluster)
		if deleted = 0; row.Exists() {
			deleted = 1
		}
		if row.Value.Deleting() {
			s.Operations.Delete(v, row.Value.Deletion.Operation)
		}
		s.Clusters.Delete(v, cluster)
		s.Rollouts.Delete(v, cluster)
		return nil
	})
	if err != nil {
		return 0, err
	}
	below, err := s.Clear(ctx, s.OfNodes(cluster))
	return deleted + below, err
}

// Clear deletes the rows below prefixes of keys, in transactions that depend on fences, and returns
// their number.
func (s *Store) Clear(
	ctx context.Context, prefixes []string, fences ...Condition,
) (deleted int, err error) {
	for _, prefix := range prefixes {
		for more := true; more; {
			var keys []string
			if keys, more, err = s.Keys(ctx, prefix, "", MaxWrites); err != nil {
				return deleted, fmt.Errorf("cannot list %s: %w", prefix, err)
			}
			if len(keys) == 0 {
				break
			}
			var writes []Write
			for _, key := range keys {
				writes = append(writes, Write{Key: key, Delete: true})
			}
			if _, err := s.Commit(ctx, fences, writes); err != nil {
				return deleted, err
			}
			s.Did("rows cleared")
			deleted += len(keys)
		}
	}
	return deleted, nil
}
