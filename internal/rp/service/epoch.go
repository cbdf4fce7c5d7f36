package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// restoredMark is a file in a data directory that was restored and not started yet.
const restoredMark = "restored"

// Restore makes a data directory of a snapshot, with whose first start a new epoch begins: it is
// marked before there is anything to start.
func Restore(snapshot, dir string) error {
	if !store.Holds(dir) { // else it is refused, and what is there is not marked
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("cannot make the data directory: %w", err)
		}
		if err := MarkRestored(dir); err != nil {
			return err
		}
	}
	return store.Restore(snapshot, dir)
}

// MarkRestored has the next start on a data directory begin a new epoch: what its store tells of
// tokens may have happened differently since the backup was made.
func MarkRestored(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, restoredMark), os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		return fmt.Errorf("cannot mark the restored directory: %w", err)
	}
	return nil
}

// beginEpoch begins a new epoch if the data directory was restored. If it is killed before the mark
// is gone there is one epoch more, which does no harm.
func beginEpoch(ctx context.Context, st *store.Store, dir string) error {
	if outside, ok := st.Backend.(interface {
		ClusterID(ctx context.Context) (string, error)
	}); ok && dir == "" {
		id, err := outside.ClusterID(ctx)
		if err != nil {
			return err
		}
		return noteCluster(ctx, st, id)
	}
	mark := filepath.Join(dir, restoredMark)
	if _, err := os.Lstat(mark); dir == "" || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := RaiseEpoch(ctx, st); err != nil {
		return err
	}
	return os.Remove(mark)
}

// etcdRow is the row of Meta with the id of the etcd cluster that the store was in at the last start.
const etcdRow = "etcd"

// noteCluster raises the epoch if the store is in another etcd cluster than at the last start.
func noteCluster(ctx context.Context, st *store.Store, id string) error {
	_, err := st.Update(ctx, "etcd cluster noted", nil, func(v *store.View) error {
		row := st.Meta.Row(v, etcdRow)
		now, err := json.Marshal(id)
		if err != nil || bytes.Equal(row.Value, now) {
			return err
		}
		if row.Exists() {
			if _, err := st.RaiseEpoch(v); err != nil {
				return err
			}
		}
		return st.Meta.Put(v, etcdRow, now)
	})
	if err != nil {
		return fmt.Errorf("cannot note the cluster of the store: %w", err)
	}
	return nil
}

// RaiseEpoch begins a new epoch of the store, and returns it.
func RaiseEpoch(ctx context.Context, st *store.Store) (int64, error) {
	epoch := int64(0)
	_, err := st.Update(ctx, "epoch begun", nil, func(v *store.View) (err error) {
		epoch, err = st.RaiseEpoch(v)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("cannot begin a new epoch: %w", err)
	}
	return epoch, nil
}
