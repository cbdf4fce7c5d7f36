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
	"syscall"

	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// Verified holds the findings about a backup.
type Verified struct {
	File string `json:"file"`
	store.SnapshotFile
	// Valid reports that a provider can be restored from it with the present keys.
	Valid bool `json:"valid"`
	store.Contents
	// Boxes counts the sealed boxes by id of their key.
	Boxes    map[string]int `json:"boxes,omitempty"`
	Problems []string       `json:"problems,omitempty"`
}

const maxProblems = 20

// VerifyBackup restores a backup into a temporary directory and reads all of it: checksum, rows,
// and secrets, with the keys of a file. The error is for a check that could not be made; problems
// of the backup are in the result.
func VerifyBackup(ctx context.Context, path, keysFile string) (Verified, error) {
	v, found := Verified{File: path}, 0
	bad := func(err error) {
		if found++; found <= maxProblems {
			v.Problems = append(v.Problems, err.Error())
		}
	}
	keys, err := seal.Load(keysFile)
	if err != nil {
		return v, err
	}
	scratch, err := os.MkdirTemp("", "flexnode-rp-verify-") // 0700
	if err != nil {
		return v, fmt.Errorf("cannot make a directory to restore into: %w", err)
	}
	defer os.RemoveAll(scratch)
	if v.SnapshotFile, err = store.CheckSnapshot(path); err == nil {
		err = store.UseSnapshot(ctx, path, scratch, func(st *store.Store) (err error) {
			if v.Contents, err = st.ReadAll(ctx, bad); err != nil {
				return err
			}
			v.Boxes, err = credential.OpenAll(ctx, st, &keys, bad)
			return err
		})
	}
	if ctx.Err() != nil {
		return v, ctx.Err()
	}
	if errors.Is(err, syscall.ENOSPC) {
		return v, fmt.Errorf("cannot restore into %s: %w", scratch, err)
	}
	if err != nil {
		bad(err)
	}
	v.Valid = found == 0
	if found > maxProblems {
		v.Problems = append(v.Problems, fmt.Sprintf("and %d more", found-maxProblems))
	}
	return v, nil
}

// restoredMark is a file in a restored data directory that was not started yet.
const restoredMark = "restored"

// Restore makes a data directory from a snapshot, marked first: its first start begins a new epoch.
func Restore(snapshot, dir string) error {
	if !store.Holds(dir) { // otherwise it is refused, and the present store is not marked
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("cannot make the data directory: %w", err)
		}
		if err := MarkRestored(dir); err != nil {
			return err
		}
	}
	return store.Restore(snapshot, dir)
}

// MarkRestored makes the next start on a data directory begin a new epoch, since the tokens in its
// store may have been used after the backup was made.
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

// beginEpoch begins a new epoch for a restored or moved store. A second one does no harm.
func beginEpoch(ctx context.Context, st *store.Store, dir string) error {
	etcd, isEtcd := st.Backend.(*store.Etcd)
	if isEtcd && dir == "" {
		id, err := etcd.ClusterID(ctx)
		if err != nil {
			return err
		}
		return noteCluster(ctx, st, id, false)
	}
	const embedded = "embedded" // its id may be that of an external etcd with one member
	mark := filepath.Join(dir, restoredMark)
	if _, err := os.Lstat(mark); errors.Is(err, fs.ErrNotExist) {
		if err = noteCluster(ctx, st, embedded, false); errors.Is(err, store.ErrFull) {
			return nil // the next start notes it
		}
		return err
	}
	err := noteCluster(ctx, st, embedded, true)
	if isEtcd && errors.Is(err, store.ErrFull) {
		// So was the backup, and no provider runs that could make room.
		_, err = etcd.CompactAll(ctx)
		err = errors.Join(err, etcd.Defragment(ctx, func(store.EtcdMember, bool) {}), etcd.Disarm(ctx))
		if err == nil {
			err = noteCluster(ctx, st, embedded, true)
		}
	}
	if err != nil {
		return err
	}
	return os.Remove(mark)
}

// etcdRow is the row of Meta with the id of the etcd cluster of the store at the last start.
const etcdRow = "etcd"

// noteCluster raises the epoch if the store was restored, or was in another etcd cluster before.
func noteCluster(ctx context.Context, st *store.Store, id string, restored bool) error {
	_, err := st.Update(ctx, "etcd cluster noted", nil, func(v *store.View) error {
		row := st.Meta.Row(v, etcdRow)
		now, _ := json.Marshal(id) // a text can be encoded
		if restored || row.Exists() && !bytes.Equal(row.Value, now) {
			if _, err := st.RaiseEpoch(v); err != nil {
				return err
			}
		}
		return st.Meta.Replace(v, etcdRow, row.Value, now)
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
