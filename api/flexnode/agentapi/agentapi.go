// Package agentapi defines the requests of agents to the resource provider, and the answers, with
// api-version 2026-05-01-preview. Package v20260501preview has the rest of the API, and
// api/typespec/main.tsp documents each field.
package agentapi

import "time"

// Version is the only api-version.
const Version = "2026-05-01-preview"

// Condition is one aspect of a node that is true, false or unknown, as in Kubernetes.
type Condition struct {
	Type               string    `json:"type"`
	Status             string    `json:"status"` // True, False or Unknown
	LastTransitionTime time.Time `json:"lastTransitionTime,omitzero"`
	Reason             string    `json:"reason,omitempty"`
	Message            string    `json:"message,omitempty"`
}

// Components holds the running versions.
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

// Applied holds the configVersions known to an agent.
type Applied struct {
	Observed string        `json:"observed,omitempty"`
	Applied  string        `json:"applied,omitempty"`
	Failed   *FailedConfig `json:"failed,omitempty"`
}

// RolledBack is the reason of a FailedConfig that was healthy and that an administrator of the
// machine has rolled back. It does not discredit its versions.
const RolledBack = "RolledBack"

// FailedConfig is a configuration that failed: the node runs the previous one.
type FailedConfig struct {
	Version string     `json:"version"`
	Reason  string     `json:"reason,omitempty"` // one word
	Message string     `json:"message,omitempty"`
	Log     string     `json:"log,omitempty"` // the last log lines of the failed unit
	At      *time.Time `json:"at,omitempty"`
}

// Drift holds the differences between a machine and its configuration.
type Drift struct {
	Policy   string      `json:"policy,omitempty"` // report, repair or off
	Count    int         `json:"count"`
	LastSeen *time.Time  `json:"lastSeen,omitempty"`
	Items    []DriftItem `json:"items,omitempty"` // the first ones
}

// DriftItem is one difference.
type DriftItem struct {
	Name    string `json:"name"` // such as a path
	Message string `json:"message,omitempty"`
}

// Report is the body of reportStatus. AppliedConfigVersion equals Config.Applied, and AgentVersion
// Components.Agent: either suffices.
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
	// Hold is why the change may not begin, in one word, and Reason the same for people. RetryAfter is
	// the number of seconds after which to ask again; a held poll returns earlier if it may begin.
	Hold       string `json:"hold,omitempty"`
	Reason     string `json:"reason,omitempty"`
	RetryAfter int    `json:"retryAfter,omitempty"`
}

// DiagnoseHeader is a header in the answer to a poll, with the id and the kind of the requested
// diagnosis, separated by a space.
const DiagnoseHeader = "X-Ms-Flexnode-Diagnose"

// Kinds of diagnoses.
const Doctor, SupportBundle = "doctor", "supportBundle"

// Diagnosed is the body of reportDiagnosis: the node's findings, or why it refuses.
type Diagnosed struct {
	ID            string    `json:"id"`
	Refused       string    `json:"refused,omitempty"`
	Findings      []Finding `json:"findings,omitempty"` // the report of doctor, faults first
	SupportBundle []byte    `json:"supportBundle,omitempty"`
}

// Finding is one condition as evaluated by doctor.
type Finding struct {
	Type     string   `json:"type"`
	Verdict  string   `json:"verdict"` // error, warning, ok, unknown or skipped
	Reason   string   `json:"reason,omitempty"`
	Message  string   `json:"message,omitempty"`
	Layer    string   `json:"layer,omitempty"`
	Owner    string   `json:"owner,omitempty"`    // who can fix it
	Remedies []string `json:"remedies,omitempty"` // commands that fix it
	Follows  []string `json:"follows,omitempty"`  // the conditions that likely caused it
}

// RegisterKey is the body of registerKey. The request is signed with the key that it registers, or
// authenticated with the node's Azure identity.
type RegisterKey struct {
	EnrolmentSecret string `json:"enrolmentSecret,omitempty"`
	// MachineToken is a token signed with the key and bound to the method and path of this request, if
	// that is authenticated with the node's Azure identity.
	MachineToken string `json:"machineToken,omitempty"`
	// PrincipalID is the object id of the node's Azure identity, as the machine learned it from the
	// cluster. The provider approves the certificate request of that identity.
	PrincipalID string        `json:"principalId,omitempty"`
	Kubelet     *KubeletProof `json:"kubelet,omitempty"`
}

// KubeletProof is a signature by the key of a kubelet's client certificate.
type KubeletProof struct {
	Certificate []byte `json:"certificate"` // DER
	// Signature is over the SHA-256 of machinekey.Statement: ECDSA in ASN.1, or RSA in PKCS #1 v1.5.
	Signature []byte `json:"signature"`
}

// Refresh is the body of refreshCredentials.
type Refresh struct {
	// PublicKey is the X25519 key, 32 bytes, to which the answer is sealed (package sealed). The node
	// makes one for each request.
	PublicKey      []byte `json:"publicKey"`
	RevokePrevious bool   `json:"revokePrevious,omitempty"`
	Joined         bool   `json:"joined,omitempty"`
}

// Refreshed is the answer of refreshCredentials: a v20260501preview.Bundle, sealed.
type Refreshed struct {
	ConfigVersion   string     `json:"configVersion"` // of the configuration in the bundle
	EncapsulatedKey []byte     `json:"encapsulatedKey"`
	Ciphertext      []byte     `json:"ciphertext"`
	Expires         *time.Time `json:"expires,omitempty"`
}

// Leave is the body of leave: the provider deletes the Node. A set field requests another thing.
type Leave struct {
	PublicKey []byte   `json:"publicKey,omitempty"`
	Arc       *ArcLeft `json:"arc,omitempty"`
}

// ArcLeft reports whether an Arc machine has left Azure, or the problem.
type ArcLeft struct {
	Problem   string `json:"problem,omitempty"`
	MachineID string `json:"machineResourceId,omitempty"`
}

// LeaveSecret is the answer to Leave with a PublicKey: the client secret, sealed.
type LeaveSecret struct {
	EncapsulatedKey []byte `json:"encapsulatedKey"`
	Ciphertext      []byte `json:"ciphertext"`
}

// Signature proves that the installation has issued a node's configuration, or deleted the node.
type Signature struct {
	Time time.Time `json:"time"`
	// Signature is ECDSA with SHA-256, in ASN.1 (docs/reference/api.md).
	Signature []byte `json:"signature"`
	// Certificate is the certificate of the signing key, in DER, issued by the root key.
	Certificate []byte `json:"certificate"`
}

// Tombstone is the additional info of a 404 for a node that its owner has deleted.
type Tombstone struct {
	DeletedAt     time.Time  `json:"deletedAt"`
	UID           string     `json:"uid"`
	ConfigVersion string     `json:"configVersion"`
	Epoch         int64      `json:"epoch"`
	Signature     *Signature `json:"signature,omitempty"`
}
