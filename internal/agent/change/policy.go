package change

import (
	"cmp"
	"context"
	"errors"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/config"
)

// Policy reads what the owner of this machine lets a provider do.
func Policy(a *Agent) (saved.Policy, error) {
	return saved.ReadPolicy(a.Reader, a.Path(saved.PolicyFile), a.TrustedFile)
}

// PolicyError reports that this machine's policy refuses a provider's configuration.
type PolicyError struct{ Err error }

func (e *PolicyError) Error() string {
	return "cannot use the configuration: " + e.Err.Error()
}

// Unwrap returns the cause: config.Problems, unless the policy cannot be used.
func (e *PolicyError) Unwrap() error { return e.Err }

// Accept returns why this machine does not take a configuration that a provider has delivered; nil
// where it does: an *OtherNodeError, or a *PolicyError.
func Accept(h *Home, c config.Config) error {
	if err := forThisNode(h, c); err != nil {
		return err
	}
	return permitted(h, c)
}

// permitted is a *PolicyError if the policy of this machine refuses a delivered configuration. What
// a policy that cannot be used would refuse is not known, so that it refuses all.
func permitted(h *Home, c config.Config) error {
	p, err := Policy(h.Agent)
	if err != nil {
		return &PolicyError{err}
	}
	var applied *config.Config
	if g := cmp.Or(h.Saved.Applied, h.Saved.Live); g != nil {
		is := h.Saved.ConfigOf(g)
		applied = &is
	}
	if problems := p.Check(c, applied, config.Defaults()); len(problems) > 0 {
		return &PolicyError{problems}
	}
	return nil
}

// Forget has the versions forgotten from which a provider may not go back, and returns them.
func Forget(ctx context.Context, a *Agent) ([]config.Resource, error) {
	h, err := OpenLocked(ctx, a, "follow reset")
	if err != nil {
		return nil, err
	}
	defer h.Close()
	forgotten, err := h.Store.Forget(ctx)
	if err == nil && len(forgotten) == 0 {
		err = errors.New("nothing to forget: this machine has no configuration from a provider")
	}
	return forgotten, err
}
