package store

import (
	"encoding/json"
	"strings"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
)

// Node is a flexNodeConfig.
type Node struct {
	ID      string      `json:"id"` // as its caller wrote it last
	Desired api.Desired `json:"desired"`
	// Resolved is what the provider decided when the node was last written; with Desired it is all that the node's configuration is made of.
	Resolved   Resolved       `json:"resolved"`
	Version    string         `json:"version"`         // configVersion
	State      string         `json:"state,omitempty"` // provisioningState; "" is Succeeded
	Credential string         `json:"credential,omitempty"`
	SystemData api.SystemData `json:"systemData"`
}

// Resolved is what the provider adds to what its caller wants.
type Resolved struct {
	Facts    string       `json:"facts"` // Facts.ID
	Versions api.Versions `json:"versions"`
	PodCIDR  string       `json:"podCIDR,omitempty"`
}

// ETag is that of the desired configuration; status does not change it.
func (n Node) ETag() string { return `"` + n.Version + `"` }

// Agent is the identity that the node has when it polls: app:<client id>, oid:<object id> or mirid:<resource id>, in lower case; "" for
// none.
func (n Node) Agent() string {
	auth := n.Desired.AzureAuth
	switch {
	case auth.ServicePrincipal != nil:
		return "app:" + strings.ToLower(auth.ServicePrincipal.ClientID)
	case auth.ManagedIdentity != nil && auth.ManagedIdentity.ClientID != "":
		return "app:" + strings.ToLower(auth.ManagedIdentity.ClientID)
	case auth.ManagedIdentity != nil && auth.ManagedIdentity.PrincipalID != "":
		return "oid:" + strings.ToLower(auth.ManagedIdentity.PrincipalID)
	case auth.Method == api.Arc:
		return "mirid:" + strings.ToLower(n.Machine())
	}
	return ""
}

// Machine is the id of the node's Arc machine: the one that the caller names, else that of the node's name in the cluster's resource
// group.
func (n Node) Machine() string {
	if arc := n.Desired.AzureAuth.Arc; arc != nil && arc.MachineResourceID != "" {
		return arc.MachineResourceID
	}
	at := strings.Index(strings.ToLower(n.ID), "/providers/")
	if at < 0 {
		return ""
	}
	return n.ID[:at] + "/providers/Microsoft.HybridCompute/machines/" + n.ID[strings.LastIndex(n.ID, "/")+1:]
}

// Status is what is said of a node.
type Status struct {
	Report api.Report     `json:"report"`
	Ready  *api.Condition `json:"ready,omitempty"` // of the Node object
	Seen   int64          `json:"seen,omitempty"`  // Unix seconds
}

// Cluster is a target cluster.
type Cluster struct {
	ID         string                `json:"id"`
	Location   string                `json:"location"`
	Tags       map[string]string     `json:"tags,omitempty"`
	Properties api.ClusterProperties `json:"properties"`
	Facts      string                `json:"facts,omitempty"` // Facts.ID; "" until the cluster has been reached
	Version    string                `json:"version"`
	SystemData api.SystemData        `json:"systemData"`
}

// Facts are what nodes are told of their cluster. They are named by their content, so that nodes share them.
type Facts struct {
	ServerURL    string `json:"serverURL"`
	CACertData   string `json:"caCertData"` // base64 of PEM
	DNSServiceIP string `json:"dnsServiceIP,omitempty"`
	Version      string `json:"version"` // of the API server, without v
	TenantID     string `json:"tenantId,omitempty"`
	Location     string `json:"location"`
}

// Subscription is the state of a subscription as ARM told it (RPC, subscription lifecycle).
type Subscription struct {
	State            string          `json:"state"`
	RegistrationDate string          `json:"registrationDate,omitempty"`
	Properties       json.RawMessage `json:"properties,omitempty"`
}

// The states of a Credential. Each is written before what it stands for is done, except Live and the end of the row, which say that
// it has been done.
const (
	Pending  = "Pending"  // shall be: the Secret may or may not be in the cluster
	Live     = "Live"     // the Secret is in the cluster, the URL answers
	Consumed = "Consumed" // a machine has used it: the URL is dead, the Secret goes when the certificate is there
	Revoking = "Revoking" // shall not be: the URL is dead, the Secret goes
)

// Credential is what a machine joins with: a URL, and, unless it joins with its identity in Azure, a bootstrap token.
type Credential struct {
	Node    string     `json:"node"`    // key
	Cluster string     `json:"cluster"` // key
	State   string     `json:"state"`
	TokenID string     `json:"tokenId,omitempty"` // "" when there is no token
	Secret  *seal.Box  `json:"secret,omitempty"`  // the token's secret
	Created time.Time  `json:"created"`
	Expires time.Time  `json:"expires"`
	Since   time.Time  `json:"since"`             // of the state
	KeyHash string     `json:"keyHash,omitempty"` // of the public key that consumed it
	CSR     string     `json:"csr,omitempty"`     // by name
	Issued  *time.Time `json:"issued,omitempty"`  // when its certificate was there
}

// Sealed is something only the holder of the keys can read.
type Sealed struct {
	Box     seal.Box  `json:"box"`
	Expires time.Time `json:"expires,omitzero"`
}

// Tombstone is a committed delete.
type Tombstone struct {
	ID      string    `json:"id"`
	Version string    `json:"version"`         // of the configuration that was deleted
	Agent   string    `json:"agent,omitempty"` // Node.Agent: who may know of it
	Deleted time.Time `json:"deleted"`
}
