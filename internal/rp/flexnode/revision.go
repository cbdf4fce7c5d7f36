package flexnode

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// Revision is one configuration of a node, rendered once and never changed. It has no secrets. Its
// text is three layers, one over the other: what the operator of the provider gives every node,
// what the cluster's nodes are told, and the node's own. The first two are shared by many nodes and
// named by their content.
type Revision struct {
	// Version is the configVersion: max(now in Unix seconds, the previous one + 1).
	Version  int64  `json:"version"`
	Defaults string `json:"defaults,omitempty"`
	Facts    string `json:"facts"`
	// Own is canonical JSON: compact, with sorted names.
	Own json.RawMessage `json:"own"`
	// SecretVersion tells which client secret goes with it; 0 is none.
	SecretVersion int64     `json:"secretVersion,omitempty"`
	Created       time.Time `json:"created"`
	// By is who has caused it, Why is "put", "facts" or "migration".
	By       string `json:"by,omitempty"`
	Why      string `json:"why"`
	Renderer string `json:"renderer,omitempty"` // version of the program
}

// Same tells whether two revisions are the same configuration.
func (r Revision) Same(o Revision) bool {
	return r.Defaults == o.Defaults && r.Facts == o.Facts && r.SecretVersion == o.SecretVersion &&
		bytes.Equal(r.Own, o.Own)
}

// Kept is how many revisions of a node are kept.
const Kept = 10

// History is the revisions of a node, the newest first.
type History struct {
	Revisions []Recorded `json:"revisions"`
}

// Recorded is a revision as it was stored: it is stored again byte for byte, with what a newer
// program has added to it.
type Recorded struct {
	Revision
	stored json.RawMessage
}

// MarshalJSON implements json.Marshaler.
func (r Recorded) MarshalJSON() ([]byte, error) {
	if r.stored != nil {
		return r.stored, nil
	}
	return json.Marshal(r.Revision)
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Recorded) UnmarshalJSON(text []byte) error {
	r.stored = bytes.Clone(text)
	return json.Unmarshal(text, &r.Revision)
}

// Find returns the revision with a configVersion.
func (h History) Find(version int64) (Revision, bool) {
	for _, r := range h.Revisions {
		if r.Version == version {
			return r.Revision, true
		}
	}
	return Revision{}, false
}

// KeptBytes bounds the configurations of the revisions of a node that are kept: a row has to go
// into a transaction together with others.
const KeptBytes = 256 << 10

// With is the history with a newer revision, of which the last Kept remain, fewer if they have more
// than KeptBytes. What is assigned is kept however old and large it is.
func (h History) With(r Revision, assigned int64) History {
	next, size, full := []Recorded{{Revision: r}}, len(r.Own), false
	for _, old := range h.Revisions {
		full = full || len(next) == Kept || size+len(old.Own) > KeptBytes
		if !full || old.Version == assigned {
			next, size = append(next, old), size+len(old.Own)
		}
	}
	return History{next}
}

// NextVersion is a configVersion after another.
func NextVersion(previous int64, now time.Time) int64 { return max(now.Unix(), previous+1) }

// ContentID names a layer by its content.
func ContentID(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:16])
}
