package store

import (
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/seal"
)

// The states of a Credential. Each is written before what it stands for is done, except Live and
// the end of the row, which say that it has been done.
const (
	// Pending: to be made. Its Secret may or may not be in the cluster.
	Pending = "Pending"
	// Live: the Secret is in the cluster and the URL answers.
	Live = "Live"
	// Consumed: a machine has used it. The URL is dead, the Secret goes when the certificate is
	// issued.
	Consumed = "Consumed"
	// Revoking: the URL is dead, the Secret goes, then the row.
	Revoking = "Revoking"
)

// Credential describes what a machine joins with: a URL, and, unless it joins with its identity in
// Azure, a bootstrap token.
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
	Issued  *time.Time `json:"issued,omitempty"`  // when its certificate was there
	// Epoch is the one that it was issued in (Meta): a restored backup knows nothing of what has
	// become of it since.
	Epoch int64 `json:"epoch,omitempty"`
	// Delivered counts how often its URL has handed out the configuration, up to a few.
	Delivered int `json:"delivered,omitempty"`
	// Denied is why a certificate request with its token was denied last, for people.
	Denied string `json:"denied,omitempty"`
	// Problem is the reason why it cannot be made Live, as callers see it.
	Problem string `json:"problem,omitempty"`
}

// ArcLeft is the Arc machine of a node that was deleted, until its machine has left Azure Arc.
type ArcLeft struct {
	Machine string    `json:"machine"` // its ARM id
	Deleted time.Time `json:"deleted"`
	// Problem is why the machine could not leave; "" while it has not said.
	Problem string `json:"problem,omitempty"`
	// Secret is the client secret that has enrolled the machine; nil for none.
	Secret *seal.Box `json:"secret,omitempty"`
}

// Sealed is something that only the holder of the keys can read.
type Sealed struct {
	Box     seal.Box  `json:"box"`
	Version int64     `json:"version,omitempty"` // of a client secret
	Expires time.Time `json:"expires,omitzero"`
}
