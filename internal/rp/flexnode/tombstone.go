package flexnode

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Tombstone is a node that was deleted.
type Tombstone struct {
	UID string `json:"uid"`
	// Revision is the last configVersion, Identity and Former are who may know of the deletion.
	Revision int64  `json:"revision"`
	Identity string `json:"identity,omitempty"`
	Former   Former `json:"former,omitempty"`
	// MachineKey is that of the machine, which may still report and leave.
	MachineKey string    `json:"key,omitempty"`
	Deleted    time.Time `json:"deleted"`
	// Wipe tells that the owner deleted the node itself, so that its machine is given back. The
	// deletion of a registration wipes no machine unless that was asked for.
	Wipe bool `json:"wipe,omitempty"`
	// Signed proves to the agent that the provider has deleted the node.
	Signed *Signed `json:"signed,omitempty"`
}

// Tombstones holds all of one name, in one row by key of the node. Every deletion writes that row,
// so that a caller that makes a node of that name and has read it depends on the absence of a later
// one: that the node's own row is absent does not show that it was absent meanwhile.
type Tombstones struct {
	// Stored are the tombstones, the last one first, with what a newer program has added.
	Stored []json.RawMessage `json:"stored"`
}

// KeptStones limits the tombstones of one name that are kept.
const KeptStones = 100

// With has one more, which is the last.
func (t Tombstones) With(s Tombstone) (Tombstones, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return t, fmt.Errorf("internal error: cannot encode a tombstone: %w", err)
	}
	kept := min(len(t.Stored), KeptStones-1)
	return Tombstones{append([]json.RawMessage{text}, t.Stored[:kept]...)}, nil
}

// Sign returns the tombstones with sign's signatures, nil being no change, and whether there is
// one.
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

// All are the tombstones, the last one first.
func (t Tombstones) All() ([]Tombstone, error) {
	all := make([]Tombstone, len(t.Stored))
	for i, text := range t.Stored {
		if err := json.Unmarshal(text, &all[i]); err != nil {
			return nil, fmt.Errorf("cannot read a tombstone: %w", err)
		}
	}
	return all, nil
}

// Of is the tombstone of a uid, or the last one for "", if there is one.
func (t Tombstones) Of(uid string) (stone Tombstone, ok bool, err error) {
	all, err := t.All()
	for _, s := range all {
		if uid == "" || s.UID == uid {
			return s, true, nil
		}
	}
	return Tombstone{}, false, err
}

// Needed are those of nodes whose machine may not know of the deletion yet and has, or may have, a
// certificate that is valid: certificates are those of its name.
func (t Tombstones) Needed(certificates Certificates, now time.Time) (Tombstones, error) {
	all, err := t.All()
	if err != nil {
		return t, err
	}
	var needed Tombstones
	for i, s := range all {
		if s.Deleted.Add(longestCertificate).After(now) || certificates.last(s.UID).After(now) {
			needed.Stored = append(needed.Stored, t.Stored[i])
		}
	}
	return needed, nil
}
