package flexnode

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Tombstone records the deletion of a node.
type Tombstone struct {
	UID string `json:"uid"`
	// Revision is the last configVersion. Identity and Former may read the tombstone.
	Revision int64  `json:"revision"`
	Identity string `json:"identity,omitempty"`
	Former   Former `json:"former,omitempty"`
	// MachineKey is the key of the machine, which may still report and leave.
	MachineKey string `json:"key,omitempty"`
	// Boot is the machine's only boot that may leave, if another machine with its key is known.
	Boot string `json:"boot,omitempty"`
	// Unused reports that no machine has ever had the node.
	Unused  bool      `json:"unused,omitempty"`
	Deleted time.Time `json:"deleted"`
	// Wipe has the machine unbootstrap, as after the DELETE of a node. The deletion of a
	// registration wipes no machine unless the caller asked for it.
	Wipe bool `json:"wipe,omitempty"`
	// Signed proves to the agent that the provider has deleted the node.
	Signed *Signed `json:"signed,omitempty"`
}

// Tombstones holds all of one name, in one row by key of the node. Every deletion writes that row:
// a transaction that has read it and makes a node of that name fails if there was a deletion since.
// The absence of the node's own row does not prove that.
type Tombstones struct {
	// Stored holds the tombstones, newest first, with members that a newer program has added.
	Stored []json.RawMessage `json:"stored"`
}

// KeptStones limits the tombstones of one name that are kept.
const KeptStones = 100

// With returns the tombstones with a new one. If they are too many, an unused one goes first.
func (t Tombstones) With(s Tombstone) Tombstones {
	if len(t.Stored) >= KeptStones {
		all, _ := t.All() // none if one cannot be read
		drop := len(t.Stored) - 1
		for i, s := range all {
			if s.Unused {
				drop = i
			}
		}
		t.Stored = slices.Delete(slices.Clone(t.Stored), drop, drop+1)
	}
	return Tombstones{append([]json.RawMessage{encode(s)}, t.Stored...)}
}

// Sign returns the tombstones with the signatures that sign returns, nil for no change, and whether
// one has changed.
func (t Tombstones) Sign(sign func(Tombstone) *Signed) (next Tombstones, changed bool, err error) {
	all, err := t.All()
	next.Stored = slices.Clone(t.Stored)
	for i, s := range all {
		if signed := sign(s); signed != nil {
			next.Stored[i], changed = withSigned(next.Stored[i], *signed), true
		}
	}
	return next, changed, err
}

// All returns the tombstones, newest first.
func (t Tombstones) All() ([]Tombstone, error) {
	all := make([]Tombstone, len(t.Stored))
	for i, text := range t.Stored {
		if err := json.Unmarshal(text, &all[i]); err != nil {
			return nil, fmt.Errorf("cannot read a tombstone: %w", err)
		}
	}
	return all, nil
}

// Of returns the tombstone of a uid, or the newest one for ""; false for none.
func (t Tombstones) Of(uid string) (stone Tombstone, ok bool, err error) {
	all, err := t.All()
	for _, s := range all {
		if uid == "" || s.UID == uid {
			return s, true, nil
		}
	}
	return Tombstone{}, false, err
}

// Needed returns the tombstones of nodes whose machine may not know of the deletion yet and may
// have a valid certificate. certificates are those of the node's name. Without a machine a
// tombstone is kept for a day: names that come and go must not fill the store.
func (t Tombstones) Needed(certificates Certificates, now time.Time) (Tombstones, error) {
	all, err := t.All()
	if err != nil {
		return t, err
	}
	var needed Tombstones
	for i, s := range all {
		seen := certificates.last(func(o Certificate) bool { return o.UID == s.UID })
		kept := LongestCertificate
		if s.Unused {
			kept = 24 * time.Hour
		}
		if s.Deleted.Add(kept).After(now) || seen.After(now) {
			needed.Stored = append(needed.Stored, t.Stored[i])
		}
	}
	return needed, nil
}
