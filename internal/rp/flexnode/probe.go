package flexnode

import (
	"strings"
	"time"
)

// Probe is what the provider has found out about a cluster itself.
type Probe struct {
	// Since is when Properties.Reachable has last changed, Unreachable why it is false.
	Since       time.Time `json:"since,omitzero"`
	Unreachable string    `json:"unreachable,omitempty"`
	// Refused is why the registration is Failed: the API server belongs to another one.
	Refused string `json:"refused,omitempty"`
	// Warnings are what the operator of the cluster should change.
	Warnings []string `json:"warnings,omitempty"`
}

// Message is what the owner of the registration is told; "" for nothing.
func (p Probe) Message() string {
	var parts []string
	for _, part := range append([]string{p.Refused, p.Unreachable}, p.Warnings...) {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, " ")
}
