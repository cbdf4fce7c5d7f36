package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// schema is the version of the rows' form that this program reads and writes. A program that gives
// rows another form, which this one would misread, raises it before it writes the first of them; a
// field more is no other form.
const schema = 2

// schemaRow is the row of Meta that has the version.
const schemaRow = "schema"

// ErrNewer is a store whose rows a newer program has given a form that this one does not know:
// nothing is written to it.
var ErrNewer = errors.New("run a newer flexnode-rp")

// checkSchema returns ErrNewer unless this program knows the version in a row that tells one.
func checkSchema(row []byte) error {
	version, err := strconv.Atoi(string(row))
	if err != nil || version > schema {
		return fmt.Errorf("cannot use the store: its rows have version %s, and this program knows "+
			"%d at most; %w", row, schema, ErrNewer)
	}
	return nil
}

// BeginSchema gives an empty store the version of this program, and then does as HoldSchema.
func (s *Store) BeginSchema(ctx context.Context) error {
	for {
		if err := s.HoldSchema(ctx); err != nil || s.HasSchema() {
			return err
		}
		key := s.Meta.Key(schemaRow)
		_, err := s.Backend.Commit(ctx, []Condition{{Key: key, Revision: 0}},
			[]Write{{Key: key, Value: []byte(strconv.Itoa(schema))}})
		if err != nil && !errors.Is(err, ErrConflict) { // another replica may have written it
			return fmt.Errorf("cannot write the store's version: %w", err)
		}
	}
}

// HoldSchema has every commit from now on depend on the rows' form being one that this program
// knows (ErrNewer): a newer program may change it at any time.
func (s *Store) HoldSchema(ctx context.Context) error {
	key := s.Meta.Key(schemaRow)
	got, _, err := s.Read(ctx, key)
	if err != nil {
		return fmt.Errorf("cannot read the store's version: %w", err)
	}
	row := got[key] // revision 0 is absent
	if row.Revision != 0 {
		if err := checkSchema(row.Value); err != nil {
			return err
		}
	}
	s.schema.Store(&Condition{Key: key, Revision: row.Revision})
	return nil
}

// HasSchema reports whether there are rows of the form that HoldSchema has found this program to
// know.
func (s *Store) HasSchema() bool {
	held := s.schema.Load()
	return held != nil && held.Revision != 0
}

// WaitForNewer waits until the rows have a form that this program does not know, and returns
// ErrNewer; nil when ctx ends before.
func (s *Store) WaitForNewer(ctx context.Context) error {
	var newer error
	for ctx.Err() == nil && newer == nil {
		_, err := s.Meta.Wait(ctx, schemaRow, func(row Row[json.RawMessage]) bool {
			if row.Exists() {
				newer = checkSchema(row.Value)
			}
			return newer != nil
		})
		if err != nil { // the store does not answer
			Pause(ctx, followPause)
		}
	}
	return newer
}

// Commit is that of the Backend, on the condition that HoldSchema has set.
func (s *Store) Commit(ctx context.Context, conditions []Condition, writes []Write) (int64, error) {
	held := s.schema.Load()
	if held == nil {
		return s.Backend.Commit(ctx, conditions, writes)
	}
	revision, err := s.Backend.Commit(ctx, append(slices.Clip(conditions), *held), writes)
	if errors.Is(err, ErrConflict) {
		if newer := s.HoldSchema(ctx); errors.Is(newer, ErrNewer) {
			return 0, newer
		}
	}
	return revision, err
}

// epochRow is the row of Meta that counts how often the store was restored from a backup.
const epochRow = "epoch"

// EpochKey is the key of the row with the epoch.
func (s *Store) EpochKey() string { return s.Meta.Key(epochRow) }

// Epoch returns how often the store was restored from a backup, from 1, within a view. If it cannot
// be read, the change fails.
func (s *Store) Epoch(v *View) int64 {
	epoch := int64(1)
	if row := s.Meta.Row(v, epochRow); row.Exists() {
		if err := json.Unmarshal(row.Value, &epoch); err != nil {
			v.Fail(fmt.Errorf("cannot read the epoch of the store: %w", err))
		}
	}
	return max(epoch, 1)
}

// ReadEpoch is Epoch by itself.
func (s *Store) ReadEpoch(ctx context.Context) (epoch int64, err error) {
	_, err = s.Update(ctx, "", nil, func(v *View) error {
		epoch = s.Epoch(v)
		return nil
	})
	return epoch, err
}

// RaiseEpoch begins a new epoch within a view, and returns it.
func (s *Store) RaiseEpoch(v *View) (int64, error) {
	epoch := s.Epoch(v) + 1
	next, err := json.Marshal(epoch)
	if err != nil {
		return 0, fmt.Errorf("internal error: %w", err)
	}
	return epoch, s.Meta.Put(v, epochRow, next)
}
