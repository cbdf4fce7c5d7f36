package flexnode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	jsonv1 "github.com/go-json-experiment/json/v1"
)

// Kept limits the revisions of a node that are kept.
const Kept = 10

// KeptBytes bounds a node's kept revisions: the row goes into a transaction with others.
const KeptBytes = 256 << 10

// History holds the revisions of a node, newest first. Its row has a reader and writer of its own,
// since each change of a node needs it, mostly for the newest revision alone: a line of JSON,
// {"revisions": [...]}, which lists them, and a line for each. Members of the first line that a
// newer program has added are preserved.
type History struct {
	revisions []recorded
	// others are the members of the first line beside the revisions.
	others map[string]json.RawMessage
}

// recorded is a revision as it is stored.
type recorded struct {
	listed
	text json.RawMessage
}

// listed is a revision in the first line of a row. Another member needs a newer schema.
type listed struct {
	Version int64 `json:"version"`
	Facts   bool  `json:"facts,omitempty"` // made because of new facts
}

// ReadRow reads a stored row. It reads no revision.
func (h *History) ReadRow(row []byte) error {
	first, rest, _ := bytes.Cut(row, []byte("\n"))
	var members map[string]json.RawMessage
	var list []listed
	err := jsonv1.Unmarshal(first, &members)
	if text, there := members["revisions"]; there && err == nil {
		err = jsonv1.Unmarshal(text, &list)
	}
	delete(members, "revisions")
	next := History{others: members}
	for _, r := range list {
		var text []byte
		text, rest, _ = bytes.Cut(rest, []byte("\n"))
		next.revisions = append(next.revisions, recorded{r, text})
	}
	if err == nil && len(rest) > 0 {
		err = errors.New("it has more revisions than it lists")
	}
	*h = next
	return err
}

// Row returns the stored form: each revision byte for byte as it was read, since it never changes.
func (h History) Row() ([]byte, error) {
	members, list := maps.Clone(h.others), make([]listed, len(h.revisions))
	if members == nil {
		members = map[string]json.RawMessage{}
	}
	for i, r := range h.revisions {
		list[i] = r.listed
	}
	members["revisions"] = encode(list)
	lines := [][]byte{encode(members)}
	for _, r := range h.revisions {
		lines = append(lines, r.text)
	}
	return bytes.Join(lines, []byte("\n")), nil
}

// Find returns the revision with a configVersion; nil if it is not kept. A revision that cannot be
// read is an error: taken for absent, the node would be resolved again.
func (h History) Find(version int64) (*Revision, error) {
	for _, r := range h.revisions {
		if r.Version == version {
			return r.read()
		}
	}
	return nil, nil
}

// Has reports whether the revision with a configVersion is kept.
func (h History) Has(version int64) bool {
	return slices.ContainsFunc(h.revisions, func(r recorded) bool { return r.Version == version })
}

// All returns the revisions, newest first.
func (h History) All() ([]*Revision, error) {
	all := make([]*Revision, len(h.revisions))
	var err error
	for i, r := range h.revisions {
		if all[i], err = r.read(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Sign returns the history with the signatures that sign returns, nil for no change, and whether
// one has changed.
func (h History) Sign(sign func(Revision) *Signed) (next History, changed bool, err error) {
	all, err := h.All()
	next = History{slices.Clone(h.revisions), h.others}
	for i, r := range all {
		if signed := sign(*r); signed != nil {
			next.revisions[i].text, changed = withSigned(h.revisions[i].text, *signed), true
		}
	}
	return next, changed, err
}

// withSigned returns a stored object with another signature; its other members are preserved.
func withSigned(text json.RawMessage, signed Signed) json.RawMessage {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		panic("internal error: " + err.Error()) // it was read
	}
	members["signed"] = encode(signed)
	return encode(members)
}

func (r recorded) read() (*Revision, error) {
	found := new(Revision)
	if err := jsonv1.Unmarshal(r.text, found); err != nil {
		return nil, fmt.Errorf("cannot read revision %d of a node: %w", r.Version, err)
	}
	return found, nil
}

// With returns the history with a newer revision: the last Kept, fewer if they exceed KeptBytes,
// and only the last of those made because of new facts. Revisions with a version in keep, such as
// the one that the node runs, are always kept.
func (h History) With(r Revision, keep ...int64) History {
	text, facts := encode(r), r.Why == WhyFacts
	next, size, full := []recorded{{listed{r.Version, facts}, text}}, len(text), false
	for _, old := range h.revisions {
		repeated := old.Facts && facts
		full = full || !repeated && (len(next) == Kept || size+len(old.text) > KeptBytes)
		if !full && !repeated || slices.Contains(keep, old.Version) {
			next, size = append(next, old), size+len(old.text)
		}
		facts = facts || old.Facts
	}
	return History{next, h.others}
}
