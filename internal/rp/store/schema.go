package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// schema is the version of the rows' form that this program reads and writes. A program that
// changes the form, so that this one would misread rows, raises it before it writes the first such
// row; an additional field does not change the form.
const schema = 2

// schemaRow is the row of Meta that has the version.
const schemaRow = "schema"

// ErrNewer is returned for a store whose rows have the form of a newer program: this one must not
// write to it.
var ErrNewer = errors.New("run a newer flexnode-rp")

// checkSchema returns ErrNewer unless this program supports the version in a row.
func checkSchema(row []byte) error {
	if version, err := strconv.Atoi(string(row)); err != nil || version > schema {
		return fmt.Errorf("cannot use the store: its rows have version %s, and this program supports "+
			"at most %d; %w", row, schema, ErrNewer)
	}
	return nil
}

// BeginSchema writes the version of this program to an empty store, and calls HoldSchema.
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

// HoldSchema makes every commit from now on depend on the rows' form, which must be one that this
// program supports (ErrNewer): a newer program may change it at any time.
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

// HasSchema reports whether HoldSchema has found rows, in a form that this program supports.
func (s *Store) HasSchema() bool {
	held := s.schema.Load()
	return held != nil && held.Revision != 0
}

// WaitForNewer waits until the rows have a form that this program does not support, and returns
// ErrNewer; nil if ctx ends before.
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

// Commit is the Backend's, with the condition of HoldSchema.
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

// epochRow is the row of Meta that counts restores of the store from a backup.
const epochRow = "epoch"

// EpochKey returns the key of the row with the epoch.
func (s *Store) EpochKey() string { return s.Meta.Key(epochRow) }

// Epoch returns the epoch within a view: from 1, one more for each restore from a backup. If it
// cannot be read, the change fails (View.Fail).
func (s *Store) Epoch(v *View) int64 {
	epoch := int64(1)
	if row := s.Meta.Row(v, epochRow); row.Exists() {
		if err := json.Unmarshal(row.Value, &epoch); err != nil {
			v.Fail(fmt.Errorf("cannot read the epoch of the store: %w", err))
		}
	}
	return max(epoch, 1)
}

// ReadEpoch returns the epoch outside a view.
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
	return epoch, s.Meta.Put(v, epochRow, strconv.AppendInt(nil, epoch, 10))
}
