package change

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"reflect"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// Delivery is a configuration as a configuration URL has given it.
type Delivery struct {
	Bundle    []byte
	Loaded    config.Loaded
	URLSHA256 string // recognizes the URL
}

// OtherNodeError tells that a machine is a node already, and that the configuration is of another.
type OtherNodeError struct{ Is, Given string }

func (e *OtherNodeError) Error() string {
	return fmt.Sprintf("cannot use the configuration: it belongs to %s, but this machine is %s; "+
		"run `aks-flex-node unbootstrap` first, or use a URL of that node", e.Given, e.Is)
}

// Received reports whether this machine has its configuration from the URL with a digest.
func Received(a *Agent, digest string) (bool, error) {
	from, err := a.Records().Source()
	if err != nil || from.URLSHA256 != digest {
		return false, err
	}
	bundle, err := a.Records().Bundle()
	return bundle != nil, err
}

// Receive makes a delivered configuration the one of this machine, unless Accept refuses it or it
// says the same as before. It is on disk, 0600, before anything else is done with it.
func Receive(ctx context.Context, a *Agent, d Delivery) error {
	h, err := OpenLocked(ctx, a, "agent --config-url")
	if err != nil {
		return err
	}
	defer h.Close()
	if h.Saved.Transition != nil && h.Saved.Transition.Kind == transition.Leave {
		return errors.New("cannot use the configuration: this machine is being restored; wait for " +
			"that to finish, or run `aks-flex-node unbootstrap`")
	}
	if err := Accept(h, d.Loaded.Config); err != nil {
		return err
	}
	given := config.JoiningOf(d.Bundle)
	had, err := h.Records().Joining()
	// Another enrolment secret registers another key: the present one may be in other hands too. It
	// goes before the secret is on disk: after a crash the URL works again.
	if err == nil && given.EnrolmentSecret != "" && given.EnrolmentSecret != had.EnrolmentSecret {
		err = h.Store.Remove(ctx, saved.MachineKeyFile)
	}
	if err != nil {
		return err
	}
	if hasReceived(ctx, h, d) {
		if reflect.DeepEqual(given, had) {
			return nil
		}
		return keepJoining(ctx, h, d, given)
	}
	if err := h.Store.KeepBundle(ctx, d.Bundle, d.Loaded.Config); err != nil {
		return err
	}
	return h.Store.SetURL(ctx, d.URLSHA256)
}

// Withdraw takes back a configuration that was delivered to a machine which is a node by a file,
// and was not applied: who has interrupted that does not want it. It reports if it did.
func Withdraw(ctx context.Context, a *Agent) (bool, error) {
	h, err := OpenLocked(ctx, a, "agent --config-url")
	if err != nil {
		return false, err
	}
	defer h.Close()
	digest, err := h.Records().BundleDigest()
	if err != nil || digest == "" {
		return false, err
	}
	if h.Saved.Applied == nil || h.Saved.Applied.Received == digest ||
		inspect.AppliedResource(h.Node.Env) != (config.Resource{}) {
		return false, nil
	}
	return true, errors.Join(h.Store.Remove(ctx, path.Base(saved.BundleFile)),
		h.Store.Remove(ctx, saved.SourceFile), h.Store.PublishCurrent(ctx, h.Saved.Applied))
}

func nameOf(c config.Config) string {
	return fmt.Sprintf("the node %s of the cluster %s", c.Agent.NodeName,
		path.Clean(c.Azure.TargetCluster.ResourceID))
}

// hasReceived reports whether a joined machine has a delivered version already, whatever token is
// in it now. An Arc machine that has to be enrolled again needs the secret in it.
func hasReceived(ctx context.Context, h *Home, d Delivery) bool {
	given := d.Loaded.Resource
	if given == nil || h.Saved.Applied == nil || !access.Held(h.Node, h.Saved.Applied.Config) ||
		h.Records().BundleResource() != *given {
		return false
	}
	c := d.Loaded.Config.Azure
	return !(c.ArcEnabled() && c.Onboards() && inspect.ArcLost(ctx, h.Node))
}

// keepJoining takes over the enrolment secret and root certificate of a version that is known: the
// provider may know another key, and have another certificate.
func keepJoining(ctx context.Context, h *Home, d Delivery, given config.Joining) error {
	bundle, err := h.Records().Bundle()
	if err != nil {
		return err
	}
	if bundle, err = config.WithJoining(bundle, given); err != nil {
		return err
	}
	return h.Store.KeepBundle(ctx, bundle, d.Loaded.Config)
}

// EnableService has the agent's service start at boot; false if none. Leaving disables it.
func EnableService(ctx context.Context, a *Agent) (installed bool, err error) {
	err = setService(ctx, a, func(to *state.Unit) {
		if installed = to.Enabled != state.NoUnit && to.Enabled != state.Masked; installed {
			to.Enabled = state.Enabled
		}
	})
	return installed, err
}

// Policy reads what the owner of this machine lets a provider do.
func Policy(a *Agent) (saved.Policy, error) {
	return saved.ReadPolicy(a.Reader, a.Path(saved.PolicyFile), a.TrustedFile)
}

// PolicyError reports that this machine's policy refuses a provider's configuration.
type PolicyError struct{ Err error }

func (e *PolicyError) Error() string { return "cannot use the configuration: " + e.Err.Error() }
func (e *PolicyError) Unwrap() error { return e.Err }

// Accept is an *OtherNodeError or a *PolicyError if a delivered configuration is not taken.
func Accept(h *Home, c config.Config) error {
	if h.Saved.Live != nil {
		is, given := nameOf(h.Saved.Live.Config), nameOf(c)
		if !strings.EqualFold(is, given) {
			return &OtherNodeError{Is: is, Given: given}
		}
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
