package store

import (
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/seal"
)

// The states of a Credential. Each is written before its effect, except Live and the end of the
// row, which are written after it.
const (
	// Pending: being made. Its Secret may or may not be in the cluster.
	Pending = "Pending"
	// Live: the Secret is in the cluster and the URL answers.
	Live = "Live"
	// Consumed: a machine has used it. The URL is dead; the Secret is deleted once the certificate
	// is issued.
	Consumed = "Consumed"
	// Revoking: the URL is dead; the Secret is deleted, then the row.
	Revoking = "Revoking"
)

// Credential describes a credential to join with: a URL and, unless the machine joins with its
// Azure identity, a bootstrap token.
type Credential struct {
	Node    string     `json:"node"`              // key
	UID     string     `json:"uid"`               // of the node
	Cluster string     `json:"cluster"`           // key
	Config  int64      `json:"config"`            // configVersion that the URL hands out
	State   string     `json:"state"`             //
	TokenID string     `json:"tokenId,omitempty"` // "" when there is no token
	Secret  *seal.Box  `json:"secret,omitempty"`  // the token's secret
	Created time.Time  `json:"created"`
	Expires time.Time  `json:"expires"`
	Since   time.Time  `json:"since"`             // of the state
	KeyHash string     `json:"keyHash,omitempty"` // of the public key that consumed it
	CSR     string     `json:"csr,omitempty"`     // name of the request that consumed it
	Issued  *time.Time `json:"issued,omitempty"`  // when its certificate was issued
	// Epoch is the epoch in which it was issued (Meta): a restored backup does not have its later
	// history.
	Epoch int64 `json:"epoch,omitempty"`
	// Delivered counts the deliveries of the configuration by its URL, up to a few.
	Delivered int `json:"delivered,omitempty"`
	// Denied is the reason, for people, of the last denied certificate request with its token.
	Denied string `json:"denied,omitempty"`
	// Problem is the reason, for callers, that it cannot become Live.
	Problem string `json:"problem,omitempty"`
}

// ArcLeft is the Arc machine of a node that was deleted, until its machine has left Azure Arc.
type ArcLeft struct {
	Machine string    `json:"machine"` // its ARM id
	Deleted time.Time `json:"deleted"`
	// Problem is the reason that the machine could not leave; "" until it reports one.
	Problem string `json:"problem,omitempty"`
	// Secret is the client secret that enrolled the machine; nil for none.
	Secret *seal.Box `json:"secret,omitempty"`
	// ShutOut reports that the machine's word, that it has left or could not, does not count.
	ShutOut bool `json:"shutOut,omitempty"`
}

// Sealed is content that only a holder of the keys can read.
type Sealed struct {
	Box     seal.Box `json:"box"`
	Version int64    `json:"version,omitempty"` // of a client secret
}
