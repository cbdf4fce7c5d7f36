package store

import "context"

// OfNodes returns the prefixes of the rows that the nodes of a cluster have, but for their
// credentials.
func (s *Store) OfNodes(cluster string) []string {
	below := cluster + "/"
	return []string{
		s.Nodes.Key(below), s.Status.Key(below), s.History.Key(below), s.Secrets.Key(below),
		s.PodCIDRs.Key(below),
	}
}

// ReleaseCluster deletes the rows of a cluster and of its nodes, which also a store does that takes
// nothing else. No tombstone is written: machines run on, unmanaged. The cluster's row goes first,
// so that no node is added meanwhile. Replicas remove its credentials later
// (credential.Service.Sweep), and another registration may claim its API server. It returns how
// many rows it has deleted.
func (s *Store) ReleaseCluster(ctx context.Context, cluster string) (deleted int, err error) {
	if err := s.HoldSchema(ctx); err != nil {
		return 0, err
	}
	_, err = s.Update(ctx, "cluster released", nil, func(v *View) error {
		row, err := s.Clusters.In(v, cluster)
		if deleted = 0; row.Exists() {
			deleted = 1
		}
		s.Clusters.Delete(v, cluster)
		s.Rollouts.Delete(v, cluster)
		return err
	})
	for _, prefix := range s.OfNodes(cluster) {
		for more := true; more && err == nil; {
			var keys []string
			if keys, more, err = s.Keys(ctx, prefix, "", MaxWrites); err == nil {
				deleted += len(keys)
				err = s.DeleteKeys(ctx, keys)
			}
		}
	}
	return deleted, err
}

// DeleteKeys deletes rows by their keys in the database, in one transaction that depends on fences.
func (s *Store) DeleteKeys(ctx context.Context, keys []string, fences ...Condition) error {
	if len(keys) == 0 {
		return nil
	}
	writes := make([]Write, 0, len(keys))
	for _, key := range keys {
		writes = append(writes, Write{Key: key, Delete: true})
	}
	_, err := s.Commit(ctx, fences, writes)
	if err == nil && s.Did != nil {
		s.Did("rows cleared")
	}
	return err
}
