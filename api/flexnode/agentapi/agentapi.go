// Package agentapi has the requests of agents to the resource provider, and the answers, with
// api-version 2026-05-01-preview. Package v20260501preview has the rest of the API, and
// api/typespec/main.tsp says what each field means.
package agentapi

import "time"

// Version is the only api-version.
const Version = "2026-05-01-preview"

// Condition is one thing that is true, false or unknown of a node, as in Kubernetes.
type Condition struct {
	Type               string    `json:"type"`
	Status             string    `json:"status"` // True, False or Unknown
	LastTransitionTime time.Time `json:"lastTransitionTime,omitzero"`
	Reason             string    `json:"reason,omitempty"`
	Message            string    `json:"message,omitempty"`
}

// Components are the versions that run.
type Components struct {
	Kubelet    string `json:"kubelet,omitempty"`
	Containerd string `json:"containerd,omitempty"`
	Runc       string `json:"runc,omitempty"`
	CNI        string `json:"cni,omitempty"`
	NPD        string `json:"npd,omitempty"`
	Agent      string `json:"agent,omitempty"`
	Kernel     string `json:"kernel,omitempty"`
	OS         string `json:"os,omitempty"`
}

// Applied is which configurations an agent knows, by their configVersions.
type Applied struct {
	Observed string        `json:"observed,omitempty"`
	Applied  string        `json:"applied,omitempty"`
	Failed   *FailedConfig `json:"failed,omitempty"`
}

// RolledBack is the reason of a FailedConfig that was healthy, and that an administrator of the
// machine has rolled back. It says nothing of its versions.
const RolledBack = "RolledBack"

// FailedConfig is a configuration that failed: the node runs the previous one.
type FailedConfig struct {
	Version string     `json:"version"`
	Reason  string     `json:"reason,omitempty"` // one word
	Message string     `json:"message,omitempty"`
	Log     string     `json:"log,omitempty"` // the last lines of what has failed
	At      *time.Time `json:"at,omitempty"`
}

// Drift has the differences between a machine and its configuration.
type Drift struct {
	Policy   string      `json:"policy,omitempty"` // report, repair or off
	Count    int         `json:"count"`
	LastSeen *time.Time  `json:"lastSeen,omitempty"`
	Items    []DriftItem `json:"items,omitempty"` // the first of them
}

// DriftItem is one such difference.
type DriftItem struct {
	Name    string `json:"name"` // such as a path
	Message string `json:"message,omitempty"`
}

// Report is the body of reportStatus. AppliedConfigVersion is the same as Config.Applied, and
// AgentVersion as Components.Agent: one of the two is enough.
type Report struct {
	AppliedConfigVersion string      `json:"appliedConfigVersion,omitempty"`
	LastConfigApplied    *time.Time  `json:"lastConfigApplied,omitempty"`
	AgentVersion         string      `json:"agentVersion,omitempty"`
	Components           *Components `json:"components,omitempty"`
	Config               *Applied    `json:"config,omitempty"`
	Drift                *Drift      `json:"drift,omitempty"`
	Conditions           []Condition `json:"conditions,omitempty"`
}

// BeginChange is the body of beginChange: the agent asks before it restarts or drains.
type BeginChange struct {
	ConfigVersion string `json:"configVersion"`
}

// ChangeBegun is the answer to BeginChange.
type ChangeBegun struct {
	GrantedSeconds int `json:"grantedSeconds,omitempty"`
	// Hold is why it may not, in one word, and Reason the same for people. RetryAfter is after how
	// many seconds it asks again; a poll that waits ends earlier when it may begin.
	Hold       string `json:"hold,omitempty"`
	Reason     string `json:"reason,omitempty"`
	RetryAfter int    `json:"retryAfter,omitempty"`
}

// DiagnoseHeader is the header of the answer to a poll that has the id and the kind of the
// diagnosis that the node is asked for, with a space between them.
const DiagnoseHeader = "X-Ms-Flexnode-Diagnose"

// Kinds of diagnoses.
const Doctor, SupportBundle = "doctor", "supportBundle"

// Diagnosed is the body of reportDiagnosis: what the node has found out, or why it does not.
type Diagnosed struct {
	ID            string    `json:"id"`
	Refused       string    `json:"refused,omitempty"`
	Findings      []Finding `json:"findings,omitempty"` // the report of doctor, what is wrong first
	SupportBundle []byte    `json:"supportBundle,omitempty"`
}

// Finding is one condition as doctor judges it.
type Finding struct {
	Type     string   `json:"type"`
	Verdict  string   `json:"verdict"` // error, warning, ok, unknown or skipped
	Reason   string   `json:"reason,omitempty"`
	Message  string   `json:"message,omitempty"`
	Layer    string   `json:"layer,omitempty"`
	Owner    string   `json:"owner,omitempty"`    // who can repair it
	Remedies []string `json:"remedies,omitempty"` // commands that do
	Follows  []string `json:"follows,omitempty"`  // the conditions that are the likely cause
}

// RegisterKey is the body of registerKey. The request is signed with the key that it registers, or
// it is one of the node's identity in Azure.
type RegisterKey struct {
	EnrolmentSecret string `json:"enrolmentSecret,omitempty"`
	// MachineToken is a token that is signed with the key and bound to the method and path of this
	// request, where the node's identity in Azure asks.
	MachineToken string `json:"machineToken,omitempty"`
	// PrincipalID is the object id of the node's identity in Azure, as the cluster has told the
	// machine. The provider approves the certificate request of that identity.
	PrincipalID string        `json:"principalId,omitempty"`
	Kubelet     *KubeletProof `json:"kubelet,omitempty"`
}

// KubeletProof is a signature by the key of a kubelet's client certificate.
type KubeletProof struct {
	Certificate []byte `json:"certificate"` // DER
	// Signature is over the SHA-256 of machinekey.Statement: ASN.1 of ECDSA, or PKCS #1 v1.5 of
	// RSA.
	Signature []byte `json:"signature"`
}

// Refresh is the body of refreshCredentials.
type Refresh struct {
	// PublicKey is the key of X25519, 32 bytes, that the answer is sealed to (package sealed). The
	// node makes one for each request.
	PublicKey      []byte `json:"publicKey"`
	RevokePrevious bool   `json:"revokePrevious,omitempty"`
	Joined         bool   `json:"joined,omitempty"`
}

// Refreshed is the answer of refreshCredentials: a v20260501preview.Bundle, sealed.
type Refreshed struct {
	ConfigVersion   string     `json:"configVersion"` // that of the configuration in the bundle
	EncapsulatedKey []byte     `json:"encapsulatedKey"`
	Ciphertext      []byte     `json:"ciphertext"`
	Expires         *time.Time `json:"expires,omitempty"`
}

// Leave is the body of leave, with which the agent has the provider delete the Node. A field of it
// asks for something else instead.
type Leave struct {
	PublicKey []byte   `json:"publicKey,omitempty"`
	Arc       *ArcLeft `json:"arc,omitempty"`
}

// ArcLeft reports how an Arc machine has left Azure.
type ArcLeft struct {
	Problem string `json:"problem,omitempty"`
}

// LeaveSecret is the answer to Leave with a PublicKey: the client secret, sealed.
type LeaveSecret struct {
	EncapsulatedKey []byte `json:"encapsulatedKey"`
	Ciphertext      []byte `json:"ciphertext"`
}

// Signature proves that the installation has given a configuration to a node, or has deleted the
// node.
type Signature struct {
	Time time.Time `json:"time"`
	// Signature is one of ECDSA with SHA-256, in ASN.1 (docs/reference/api.md)
	Signature []byte `json:"signature"`
	// Certificate is that of the key that has signed, in DER. The root key has made it.
	Certificate []byte `json:"certificate"`
}

// Tombstone is the additional info of a 404 by which an agent knows that the owner of its node has
// deleted it.
type Tombstone struct {
	DeletedAt     time.Time  `json:"deletedAt"`
	UID           string     `json:"uid"`
	ConfigVersion string     `json:"configVersion"`
	Epoch         int64      `json:"epoch"`
	Signature     *Signature `json:"signature,omitempty"`
}
