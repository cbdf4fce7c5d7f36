package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// SnapshotFile describes the file of a snapshot.
type SnapshotFile struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256,omitempty"` // of the whole file
}

// etcdPage is a divisor of the size of a database; the checksum follows.
const etcdPage = 512

// CheckSnapshot checks that a snapshot is whole: its checksum is at its end.
func CheckSnapshot(path string) (SnapshotFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return SnapshotFile{}, fmt.Errorf("cannot read the backup: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return SnapshotFile{}, fmt.Errorf("cannot read the backup: %w", err)
	}
	size := info.Size()
	switch {
	case size == 0:
		return SnapshotFile{}, errors.New("the file is empty")
	case size < etcdPage || size%etcdPage != sha256.Size:
		return SnapshotFile{Bytes: size}, fmt.Errorf("the file is truncated or is not a snapshot: %d "+
			"bytes are not a database with a checksum", size)
	}
	content, all := sha256.New(), sha256.New()
	_, err = io.CopyN(io.MultiWriter(content, all), f, size-sha256.Size)
	var told [sha256.Size]byte
	if err == nil {
		_, err = io.ReadFull(f, told[:])
	}
	if err != nil {
		return SnapshotFile{Bytes: size}, fmt.Errorf("cannot read the backup: %w", err)
	}
	all.Write(told[:])
	file := SnapshotFile{Bytes: size, SHA256: hex.EncodeToString(all.Sum(nil))}
	if string(content.Sum(nil)) != string(told[:]) {
		return file, errors.New("the file is damaged or was changed: its content does not match the " +
			"checksum at its end")
	}
	return file, nil
}

// UseSnapshot restores a snapshot into an empty directory, opens it as the start after a restore
// does, and calls use.
func UseSnapshot(ctx context.Context, path, scratch string, use func(*Store) error) error {
	err := Restore(path, scratch)
	var opened *Etcd
	if err == nil {
		opened, err = Open(ctx, scratch, Options{NoSync: true})
	}
	if err == nil {
		err = errors.Join(use(New(opened)), opened.Close())
	}
	return err
}

// Contents counts the rows of a store, by table.
type Contents struct {
	Schema   int            `json:"schema,omitempty"`
	Revision int64          `json:"revision,omitempty"`
	Epoch    int64          `json:"epoch,omitempty"`
	Rows     map[string]int `json:"rows,omitempty"`
	// Unknown counts rows of tables that only a newer release has.
	Unknown int `json:"unknownRows,omitempty"`
}

// ReadAll reads every row of a store. bad receives the error of each that cannot be read.
func (s *Store) ReadAll(ctx context.Context, bad func(error)) (Contents, error) {
	c := Contents{Schema: schema, Rows: map[string]int{}}
	if err := s.HoldSchema(ctx); err != nil {
		return c, err
	}
	if !s.HasSchema() {
		return c, errors.New("the store has no rows of this release")
	}
	tables := append(slices.Clip(s.tables), decoder{seenTable, indexed + seenTable + "/", checkSeen})
	at, err := s.pages(ctx, root, func(kvs []KV) error {
		for _, kv := range kvs {
			c.count(tables, kv, bad)
		}
		return nil
	})
	if c.Revision = at; err != nil {
		return c, err
	}
	c.Epoch, err = s.ReadEpoch(ctx)
	return c, err
}

func (c *Contents) count(tables []decoder, kv KV, bad func(error)) {
	for _, t := range tables {
		if key, ok := strings.CutPrefix(kv.Key, t.prefix); ok {
			c.Rows[t.name]++
			if err := t.decode(key, kv); err != nil {
				bad(err)
			}
			return
		}
	}
	c.Unknown++
}

// decoder checks that a row of a table can be read.
type decoder struct {
	name, prefix string
	decode       func(key string, kv KV) error
}

func checkSeen(key string, kv KV) error {
	if len(kv.Value)%seenItemSize != 0 {
		return fmt.Errorf("cannot read the stored row %s: it is truncated", kv.Key)
	}
	return nil
}
