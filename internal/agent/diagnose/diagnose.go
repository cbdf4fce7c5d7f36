// Package diagnose runs the diagnoses that a provider requests, within the policy of the machine.
package diagnose

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/Azure/AKSFlexNode/api/flexnode/agentapi"
	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/support"
	"github.com/Azure/AKSFlexNode/internal/health"
)

const (
	answerFor = 2 * time.Minute // bounds a diagnosis for a provider
	// maxFindings and maxBundle are the sizes that the provider accepts, in bytes, and answerText the
	// size of one text (docs/reference/api.md).
	maxFindings = 60 << 10
	maxBundle   = 768 << 10
	answerText  = 800
)

// Answers returns a function that runs diagnoses for a provider, beside the work of the agent a. It
// does not count as the agent's sign of life: machine is a connection of its own.
func Answers(
	a *change.Agent, machine change.Machine,
) func(ctx context.Context, kind string) agentapi.Diagnosed {
	beside := &change.Agent{
		Env: a.Env, Machine: machine, Client: a.Client, Provider: a.Provider, Identity: a.Identity,
		Given: a.Given, Person: a.Person,
	}
	beside.Reader, beside.Show, beside.Beat = machine, nil, nil
	return func(ctx context.Context, kind string) agentapi.Diagnosed {
		defer machine.Close() // systemd sends a connected client the changes of all units
		return answer(ctx, beside, kind)
	}
}

func answer(ctx context.Context, a *change.Agent, kind string) (d agentapi.Diagnosed) {
	limits, err := change.Policy(a)
	if err != nil {
		d.Refused = health.Clip(err.Error(), answerText)
		return d
	}
	if d.Refused = limits.Diagnose.Refuses(kind); d.Refused != "" {
		return d
	}
	ctx, cancel := context.WithTimeout(ctx, answerFor)
	defer cancel()
	var given support.Given
	if a.Given != nil {
		if c := a.Given(); c != nil {
			given.Input = &change.Input{Config: *c}
		}
	}
	if kind == agentapi.Doctor {
		d.Findings = findings(support.DoctorWithoutSecrets(ctx, a, given))
		return d
	}
	if d.SupportBundle, err = bundleFor(ctx, a, given, limits.Diagnose.Key); err != nil {
		d.Refused = health.Clip(err.Error(), answerText)
	}
	return d
}

// findings returns as much of doctor's report as the provider accepts.
func findings(list []health.Diagnosis) []agentapi.Finding {
	var all []agentapi.Finding
	for size, i := 0, 0; i < len(list); i++ {
		c := list[i]
		f := agentapi.Finding{
			Type: c.Type, Verdict: c.Verdict, Reason: c.Reason, Layer: string(c.Layer),
			Message: health.Clip(c.Message, answerText), Owner: c.Owner, Follows: c.Follows,
		}
		for _, command := range c.Remedies {
			f.Remedies = append(f.Remedies, health.Clip(command, answerText))
		}
		text, err := json.Marshal(f)
		if size += len(text); err != nil || size > maxFindings {
			break
		}
		all = append(all, f)
	}
	return all
}

// bundleFor returns a support bundle, encrypted to a key, with journals up to the provider's limit.
func bundleFor(
	ctx context.Context, a *change.Agent, given support.Given, key string,
) ([]byte, error) {
	seal, err := support.Encrypt(key)
	if err != nil {
		return nil, err
	}
	for lines := support.JournalLines; lines > 0; lines /= 4 {
		var out bytes.Buffer
		if _, err = support.SupportBundle(ctx, a, given, lines, seal, &out); err != nil {
			return nil, err
		}
		if out.Len() <= maxBundle {
			return out.Bytes(), nil
		}
	}
	return nil, fmt.Errorf("the support bundle is larger than %d bytes: create it on the machine "+
		"with `aks-flex-node support-bundle`", maxBundle)
}
