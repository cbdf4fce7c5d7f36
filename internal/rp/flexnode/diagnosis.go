package flexnode

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
)

const (
	// DiagnosisAge is the time for which a diagnosis is kept.
	DiagnosisAge = 24 * time.Hour
	// MaxDiagnoses is the max number of diagnoses kept of a subscription's nodes.
	MaxDiagnoses = 100
	// MaxBundle bounds a support bundle, MaxDiagnosed a report: a row of etcd is at most 1.5 MiB.
	MaxBundle    = 768 << 10
	MaxDiagnosed = MaxBundle*4/3 + 4<<10
	// maxFindings bounds the report of doctor, in bytes, and maxFound the number of its findings.
	maxFindings = 64 << 10
	maxFound    = 1000
)

// Diagnosis holds the last diagnosis requested of a node, and the answer.
type Diagnosis = api.Diagnosis

// Diagnose is a pending request for a diagnosis.
type Diagnose struct {
	ID      string    `json:"id"`
	Kind    string    `json:"kind"`
	Expires time.Time `json:"expires"`
}

// Asked returns the request that is pending at a time; nil for none.
func (n Node) Asked(now time.Time) *Diagnose {
	if n.Diagnose == nil || now.After(n.Diagnose.Expires) {
		return nil
	}
	return n.Diagnose
}

// Diagnosing returns the node with a request for a diagnosis, and that diagnosis.
func (n Node) Diagnosing(kind, by string, now time.Time) (Node, api.Diagnosis, error) {
	if kind != api.Doctor && kind != api.SupportBundle {
		return n, api.Diagnosis{}, Problems{{"kind", "This must be doctor or supportBundle."}}
	}
	if !n.Desired.ContinuousMonitoring {
		return n, api.Diagnosis{}, arm.Errorf(409, "NotFollowing",
			"The node does not follow its resource (continuousMonitoring), so it cannot receive this "+
				"request.")
	}
	d := api.Diagnosis{
		ID: uuid.NewString(), Kind: kind, State: api.DiagnosisRequested, Requested: now,
		RequestedBy: by, Expires: now.Add(DiagnosisAge),
	}
	n.Diagnose = &Diagnose{d.ID, kind, d.Expires}
	return n, d, nil
}

// Diagnosed returns the node without its request, and the diagnosis with the answer.
func (n Node) Diagnosed(
	d api.Diagnosis, answer api.Diagnosed, now time.Time,
) (Node, api.Diagnosis, error) {
	if asked := n.Asked(now); asked == nil || asked.ID != answer.ID || d.ID != answer.ID {
		return n, d, arm.Errorf(409, "DiagnosisNotRequested",
			"This diagnosis was not requested from the node.")
	}
	n.Diagnose = nil
	d.State, d.Message, d.Completed = api.DiagnosisCompleted, answer.Refused, &now
	if answer.Refused != "" {
		d.State = api.DiagnosisRefused
		return n, d, nil
	}
	d.Findings, d.SupportBundle = answer.Findings, answer.SupportBundle
	return n, d, nil
}

// ReadDiagnosed reads and checks the diagnosis of an agent.
func ReadDiagnosed(body []byte) (api.Diagnosed, error) {
	var d api.Diagnosed
	if err := DecodeLenient(body, &d); err != nil {
		return d, err
	}
	var problems Problems
	problems.unless(len(d.SupportBundle) <= MaxBundle, "supportBundle",
		"This is larger than %d bytes.", MaxBundle)
	problems.bound("refused", d.Refused, maxText)
	problems.unless(len(d.Findings) <= maxFound, "findings", "There are more than %d.", maxFound)
	size := 0
	for i, f := range d.Findings {
		at := fmt.Sprintf("findings[%d].", i)
		texts := []string{f.Type, f.Verdict, f.Reason, f.Message, f.Layer, f.Owner}
		for _, text := range slices.Concat(texts, f.Remedies, f.Follows) {
			problems.bound(at+"message", text, maxLog)
			size += len(text)
		}
	}
	problems.unless(size <= maxFindings, "findings", "This is larger than %d bytes.", maxFindings)
	return d, problems.err()
}
