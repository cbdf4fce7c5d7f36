package store

import (
	"context"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// schema is the version of the rows' form that this program reads and writes.
const schema = 1

// migrations bring rows from one version to the next; the i-th from version i+1.
func migrations() []func(context.Context, *clientv3.Client) error { return nil }

// Migrate brings the stored rows into the form that this program knows. A store that a newer program has written is refused: going back
// would lose what only that program understands.
func (s *Store) Migrate(ctx context.Context) error {
	const key = root + "schema"
	got, err := s.client.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("cannot read the store's version: %w", err)
	}
	if len(got.Kvs) == 0 {
		_, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).Then(clientv3.OpPut(key, strconv.Itoa(schema))).Commit()
		return err
	}
	version, err := strconv.Atoi(string(got.Kvs[0].Value))
	if err != nil || version > schema {
		return fmt.Errorf("cannot use the store: its rows have version %s, and this program knows %d at most; run a newer flexnode-rp", got.Kvs[0].Value, schema)
	}
	for ; version < schema; version++ {
		if err := migrations()[version-1](ctx, s.client); err != nil {
			return fmt.Errorf("cannot migrate the store from version %d: %w", version, err)
		}
		if _, err := s.client.Put(ctx, key, strconv.Itoa(version+1)); err != nil {
			return fmt.Errorf("cannot migrate the store from version %d: %w", version, err)
		}
	}
	return nil
}
