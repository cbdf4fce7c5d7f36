package flexnode

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// Revision is one configuration of a node, rendered once and never changed. It has no secrets. Its
// text is three layers, one over the other: the settings that the operator of the provider gives
// every node, the facts that the cluster's nodes receive, and the node's own settings. The first
// two are shared by many nodes and named by their content.
type Revision struct {
	// Version is the configVersion: max(now in Unix seconds, the previous one + 1).
	Version  int64  `json:"version"`
	Defaults string `json:"defaults,omitempty"`
	Facts    string `json:"facts"`
	// Own is canonical JSON: compact, with sorted names.
	Own json.RawMessage `json:"own"`
	// Desired holds the owner's settings of that time, without secrets.
	Desired *api.Desired `json:"desired,omitempty"`
	// SecretVersion tells which client secret goes with it; 0 is none.
	SecretVersion int64     `json:"secretVersion,omitempty"`
	Created       time.Time `json:"created"`
	// By is the identity that has caused it, Why is "put", WhyFacts or "rollback". Repeats is the
	// version that a rollback repeats.
	By       string `json:"by,omitempty"`
	Why      string `json:"why"`
	Repeats  int64  `json:"repeats,omitempty"`
	Renderer string `json:"renderer,omitempty"` // version of the program
	// Signed proves to agents that the provider has made the revision.
	Signed *Signed `json:"signed,omitempty"`
}

// Signed is a signature of a revision or tombstone by a key of the ring, in an epoch.
type Signed struct {
	Epoch     int64  `json:"epoch"`
	Time      int64  `json:"time"` // Unix seconds
	Key       string `json:"key"`
	Signature []byte `json:"signature"`
}

// WhyFacts is the Why of a revision made because the cluster's facts have changed.
const WhyFacts = "facts"

// NextVersion is a configVersion after another.
func NextVersion(previous int64, now time.Time) int64 { return max(now.Unix(), previous+1) }

// ContentID names a layer by its content.
func ContentID(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:16])
}
