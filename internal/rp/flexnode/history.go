package flexnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/Azure/AKSFlexNode/internal/rp/rawjson"
)

// Kept is how many revisions of a node are kept.
const Kept = 10

// KeptBytes bounds the revisions of a node that are kept: a row has to go into a transaction
// together with others.
const KeptBytes = 256 << 10

// History is the revisions of a node, the newest first. It is a row of the store, {"revisions":
// [...]}, that reads and writes itself: each change of a node does, mostly for the newest alone.
// Revisions that were stored are stored again byte for byte, and so is what a newer program has
// added to them and beside them.
type History struct {
	revisions []recorded
	// before and after are what the row has around the revisions; nil for one that was not read.
	before, after []byte
}

// recorded is a revision as it is stored.
type recorded struct {
	version int64
	text    []byte
	made    *Revision // one that is not stored yet
}

// ReadRow reads a stored row.
func (h *History) ReadRow(row []byte) error {
	var next History
	var errs error
	s := rawjson.NewScanner(row)
	s.Members(func(name []byte) bool {
		if string(name) != "revisions" || s.Peek() != '[' {
			s.Value()
			return true
		}
		next.before = s.Before()
		s.Items(func() {
			r, err := readRecorded(s)
			errs = errors.Join(errs, err)
			next.revisions = append(next.revisions, r)
		})
		next.after = s.After()
		return true
	})
	if !s.Done() {
		errs = errors.Join(errs, errors.New("it is no JSON object"))
	}
	*h = next
	return errs
}

// readRecorded reads a revision, and of it the version alone.
func readRecorded(s *rawjson.Scanner) (r recorded, err error) {
	found, from := false, len(s.Before())
	s.Members(func(name []byte) bool {
		value := s.Value()
		if !found && string(name) == "version" {
			found = true
			r.version, err = strconv.ParseInt(string(value), 10, 64)
		}
		return true
	})
	if s.Lost() || err != nil || !found {
		return r, errors.New("a revision has no version")
	}
	r.text = s.Since(from)
	return r, nil
}

// Row is what is stored.
func (h History) Row() ([]byte, error) {
	before, after := h.before, h.after
	if before == nil {
		before, after = []byte(`{"revisions":`), []byte{'}'}
	}
	size := len(before) + len("[]") + len(after)
	for _, r := range h.revisions {
		size += len(r.text) + len(",")
	}
	row := append(make([]byte, 0, size), before...)
	open := byte('[')
	for _, r := range h.revisions {
		row = append(append(row, open), r.text...)
		open = ','
	}
	if open == '[' {
		row = append(row, open)
	}
	return append(append(row, ']'), after...), nil
}

// Find returns the revision with a configVersion, nil if there is none. One that cannot be read is
// an error: to take it for none would have the node resolved anew.
func (h History) Find(version int64) (*Revision, error) {
	for _, r := range h.revisions {
		if r.version == version {
			return r.read()
		}
	}
	return nil, nil
}

// Has reports whether the revision with a configVersion is kept.
func (h History) Has(version int64) bool {
	return slices.ContainsFunc(h.revisions, func(r recorded) bool { return r.version == version })
}

// All are the revisions, the newest first.
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

func (r recorded) read() (*Revision, error) {
	if r.made != nil {
		return r.made, nil
	}
	found := new(Revision)
	if err := jsonv1.Unmarshal(r.text, found); err != nil { // in half of encoding/json's time
		return nil, fmt.Errorf("cannot read revision %d of a node: %w", r.version, err)
	}
	return found, nil
}

// With is the history with a newer revision, of which the last Kept remain, fewer if they have more
// than KeptBytes. What is assigned is kept however old and large it is.
func (h History) With(r Revision, assigned int64) History {
	text, err := json.Marshal(r)
	if err != nil { // what was decoded or rendered encodes
		panic("internal error: " + err.Error())
	}
	next, size, full := []recorded{{r.Version, text, &r}}, len(text), false
	for _, old := range h.revisions {
		full = full || len(next) == Kept || size+len(old.text) > KeptBytes
		if !full || old.version == assigned {
			next, size = append(next, old), size+len(old.text)
		}
	}
	return History{next, h.before, h.after}
}
