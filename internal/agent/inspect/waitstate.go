package inspect

import (
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/health"
)

// WaitingFile is below RunDir: a machine that has booted waits for nothing.
const WaitingFile = "waiting.json"

// Waiting is why the change to a document waits.
type Waiting struct {
	health.Waiting
	// Received is the digest of the document.
	Received string `json:"received"`
}

func volatile(a *Env) saved.Records {
	return saved.Records{Files: a.Reader, Dir: saved.RunDir}
}

// ReadWaiting returns why a change waits; nil when none does.
func ReadWaiting(a *Env) *Waiting {
	var w Waiting
	found, err := volatile(a).Load(WaitingFile, &w)
	if err != nil {
		a.Log.Warn("cannot read why a change waits", "error", err)
	}
	if !found || err != nil {
		return nil
	}
	return &w
}

// WaitingEvidence returns why a change waits, as a condition reads it.
func WaitingEvidence(a *Env) *health.Waiting {
	if w := ReadWaiting(a); w != nil {
		return &w.Waiting
	}
	return nil
}

// waitingText returns why a change waits as the end of a sentence.
func waitingText(a *Env) string {
	w := ReadWaiting(a)
	if w == nil {
		return ""
	}
	return " and waits: " + firstLine(w.Message)
}
