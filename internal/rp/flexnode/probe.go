package flexnode

import (
	"strings"
	"time"
)

// Probe holds the provider's own findings about a cluster.
type Probe struct {
	// Since is when Properties.Reachable has last changed, Unreachable why it is false.
	Since       time.Time `json:"since,omitzero"`
	Unreachable string    `json:"unreachable,omitempty"`
	// Refused is why the registration is Failed: the API server belongs to another one.
	Refused string `json:"refused,omitempty"`
	// Warnings lists what the operator of the cluster should change.
	Warnings []string `json:"warnings,omitempty"`
}

// Message returns the message for the owner of the registration; "" for nothing.
func (p Probe) Message() string {
	var parts []string
	for _, part := range append([]string{p.Refused, p.Unreachable}, p.Warnings...) {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, " ")
}
