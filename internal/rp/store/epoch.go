package store

import (
	"encoding/json"
	"fmt"
)

// epochRow is the row of Meta that counts how often the store was restored from a backup.
const epochRow = "epoch"

// EpochKey is the key of the row with the epoch.
func (s *Store) EpochKey() string { return s.Meta.Key(epochRow) }

// Epoch returns how often the store was restored from a backup, from 1, within a view.
func (s *Store) Epoch(v *View) (int64, error) {
	row, err := s.Meta.In(v, epochRow)
	if err != nil {
		return 0, err
	}
	epoch := int64(1)
	if row.Exists() {
		if err := json.Unmarshal(row.Value, &epoch); err != nil {
			return 0, fmt.Errorf("cannot read the epoch of the store: %w", err)
		}
	}
	return max(epoch, 1), nil
}

// RaiseEpoch begins a new epoch within a view, and returns it.
func (s *Store) RaiseEpoch(v *View) (int64, error) {
	epoch, err := s.Epoch(v)
	if err != nil {
		return 0, err
	}
	epoch++
	next, err := json.Marshal(epoch)
	if err != nil {
		return 0, fmt.Errorf("internal error: %w", err)
	}
	return epoch, s.Meta.Put(v, epochRow, next)
}
