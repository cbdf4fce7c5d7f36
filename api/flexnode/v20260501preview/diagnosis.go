package v20260501preview

import (
	"time"

	"github.com/Azure/AKSFlexNode/api/flexnode/agentapi"
)

// What agents and their provider call a diagnosis.
const (
	DiagnoseHeader = agentapi.DiagnoseHeader
	Doctor         = agentapi.Doctor
	SupportBundle  = agentapi.SupportBundle
)

// DiagnoseRequest is the body of diagnose.
type DiagnoseRequest struct {
	Kind string `json:"kind"` // doctor or supportBundle
}

// The states of a diagnosis.
const (
	DiagnosisRequested = "Requested"
	DiagnosisCompleted = "Completed"
	DiagnosisRefused   = "Refused"
)

// Diagnosis is the answer of diagnose and listDiagnosis: what a node was asked for last, and its
// answer.
type Diagnosis struct {
	ID    string `json:"id"`
	Kind  string `json:"kind"`
	State string `json:"state"`
	// Message is why the machine refuses.
	Message     string     `json:"message,omitempty"`
	Requested   time.Time  `json:"requested"`
	RequestedBy string     `json:"requestedBy,omitempty"`
	Completed   *time.Time `json:"completed,omitempty"`
	// Expires is when it is deleted.
	Expires       time.Time `json:"expires"`
	Findings      []Finding `json:"findings,omitempty"`
	SupportBundle []byte    `json:"supportBundle,omitempty"`
}
