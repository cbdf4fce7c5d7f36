package change

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"reflect"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// MachineKeys returns the keys of the machine, which sign requests to a provider.
func MachineKeys(a *Agent) follow.Keys {
	return saved.Keys{
		Writer: saved.NewWriter(a.Machine), RunDir: a.Path(saved.RunDir), Writing: &a.Bundle,
		Kubelet: func(ctx context.Context) ([]byte, error) {
			h, err := OpenReadOnly(ctx, a)
			if err != nil || h.Saved.Live == nil {
				return nil, err
			}
			pair, err := a.ReadFile(access.ClientCertificate(h.Saved.Live.Config))
			if errors.Is(err, fs.ErrNotExist) {
				return nil, nil
			}
			return pair, err
		},
	}
}

// followed returns the resource of the received configuration, else of the applied one.
func followed(a *inspect.Env) config.Resource {
	return cmp.Or(a.Records().BundleResource(), inspect.Source(a).Applied)
}

// ResourceOf returns the resource of a configuration, even of an unusable one; zero for none.
func ResourceOf(a *Agent, in Input) config.Resource {
	switch {
	case in.Resource != nil:
		return *in.Resource
	case in.Origin == "url":
		return followed(&a.Env)
	}
	return config.Resource{}
}

// NoteApplied records the version that the node runs.
func NoteApplied(ctx context.Context, a *Agent, r *config.Resource) error {
	if r == nil {
		return nil
	}
	return saved.NewWriter(a.Machine).SetApplied(ctx, *r, inspect.Stamp())
}

// FormerManner returns the manner in which the provider last answered, until it has answered in
// that of the applied configuration; then the zero value.
func FormerManner(h *Home) follow.Manner {
	id := h.Saved.Bindings.Answered
	if id == "" {
		return follow.Manner{}
	}
	c, err := h.Saved.Generations.Config(id)
	if err != nil {
		h.Log.Warn("cannot read the previous connection to the provider", "error", err)
		return follow.Manner{}
	}
	return follow.MannerOf(c.WithCredentials(h.Saved.Secrets[id]))
}

// answeredBefore returns the generation in whose manner the provider last answered; "" if the
// committed one polls in the same manner, or not at all.
func answeredBefore(w *work) string {
	id, former := w.Saved.Bindings.Answered, FormerManner(w.Home)
	if !former.Asks && w.Saved.Applied != nil {
		id, former = w.Saved.Applied.ID, follow.MannerOf(w.Saved.ConfigOf(w.Saved.Applied))
	}
	if next := follow.MannerOf(w.config); !next.Asks || !former.Asks || next.SameWay(former) {
		return ""
	}
	return id
}

// question returns a Question to the provider of a resource, asked as this node, in some ways.
func question(h *Home, is config.Resource, ways ...follow.Manner) follow.Question {
	return follow.Question{
		Resource: follow.Resource{ID: is.ID, UID: is.UID}, Ways: ways,
		Client:   func(c config.Config) *http.Client { return ProviderClient(h.Agent, c) },
		Identity: h.Agent.Identity, Keys: MachineKeys(h.Agent), Alive: h.Alive,
	}
}

// ask gets the provider's consent to disrupt the node, which is stored before the cordon.
func (w *work) ask(ctx context.Context, t *transition.Transition) error {
	if t.Asks == "" {
		return nil
	}
	now, former := follow.MannerOf(w.Saved.ConfigOf(w.Saved.Applied)), FormerManner(w.Home)
	err := follow.Begin(ctx, question(w.Home, followed(w.Node.Env), now, former), t.Asks)
	if err == nil {
		t.Asks = ""
	}
	return err
}

// tryProvider checks that the provider does not refuse a joining machine.
func tryProvider(ctx context.Context, h *Home, t *Target) error {
	c := t.Input.Config
	m := follow.MannerOf(c)
	if h.Saved.Joined() || !m.Signs && !showsWho(ctx, h, c) {
		return nil
	}
	err := follow.Prove(ctx, question(h, ResourceOf(h.Agent, t.Input), m))
	if err == nil || transition.Of(err).Kind == transition.Refused {
		return err
	}
	h.Warn("cannot follow the resource provider yet: %v; the machine joins anyway", err)
	return nil
}

// Delivery is a configuration delivered by a configuration URL.
type Delivery struct {
	Bundle    []byte
	Loaded    config.Loaded
	URLSHA256 string // identifies the URL
}

// OtherNodeError reports that the configuration is for another node than this machine.
type OtherNodeError struct{ Is, Given string }

func (e *OtherNodeError) Error() string {
	return fmt.Sprintf("cannot use the configuration: it belongs to %s, but this machine is %s; "+
		"run `aks-flex-node unbootstrap` first, or use a URL of that node", e.Given, e.Is)
}

// Received reports whether this machine got its configuration from the URL with a digest.
func Received(a *Agent, digest string) (bool, error) {
	from, err := a.Records().Source()
	if err != nil || from.URLSHA256 != digest {
		return false, err
	}
	bundle, err := a.Records().Bundle()
	return bundle != nil, err
}

// Receive makes a delivered configuration that of this machine, unless Accept refuses it or it is
// the same as before. It is stored, 0600, before anything else is done with it.
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
	// Another enrolment secret registers another key: the current one may be in other hands too.
	// Remove the key before storing the secret: after a crash the URL works again. While the secret
	// cannot be stored, the provider knows the machine by the key.
	var key []byte
	if err == nil && given.EnrolmentSecret != "" && given.EnrolmentSecret != had.EnrolmentSecret {
		if key, err = h.Records().Read(saved.MachineKeyFile); err == nil {
			err = h.Store.Remove(ctx, saved.MachineKeyFile)
		}
	}
	received, bundle := hasReceived(ctx, h, d), d.Bundle
	if err != nil || received && reflect.DeepEqual(given, had) {
		return err
	}
	if received { // but the provider may know another key, and have another certificate
		if bundle, err = h.Records().Bundle(); err == nil {
			bundle, err = config.WithJoining(bundle, given)
		}
	}
	if err == nil {
		err = h.Store.KeepBundle(ctx, bundle, d.Loaded.Config)
	}
	if err != nil && key != nil {
		err = errors.Join(err, h.Store.Write(ctx, saved.MachineKeyFile, string(key)))
	}
	if err != nil || received {
		return err
	}
	return h.Store.SetURL(ctx, d.URLSHA256)
}

// Withdraw removes a delivered but unapplied configuration from a machine that is a node by a file:
// the person who interrupted it does not want it. It reports whether it did.
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
		inspect.Source(h.Node.Env).Applied != (config.Resource{}) {
		return false, nil
	}
	return true, errors.Join(h.Store.Remove(ctx, path.Base(saved.BundleFile)),
		h.Store.Remove(ctx, saved.SourceFile), h.Store.PublishCurrent(ctx, h.Saved.Applied))
}

func nameOf(c config.Config) string {
	return fmt.Sprintf("the node %s of the cluster %s", c.Agent.NodeName,
		path.Clean(c.Azure.TargetCluster.ResourceID))
}

// hasReceived reports whether a joined machine already has a delivered version, whatever its token.
// An Arc machine that must be enrolled again needs the secret in it.
func hasReceived(ctx context.Context, h *Home, d Delivery) bool {
	given := d.Loaded.Resource
	if given == nil || !Credentialed(h) || h.Records().BundleResource() != *given {
		return false
	}
	c := d.Loaded.Config.Azure
	return !(c.ArcEnabled() && c.Onboards() && inspect.ArcLost(ctx, h.Node))
}

// EnableService makes the agent's service start at boot; false if not installed.
func EnableService(ctx context.Context, a *Agent) (installed bool, err error) {
	err = setService(ctx, a, func(to *state.Unit) {
		if installed = to.Enabled != state.NoUnit && to.Enabled != state.Masked; installed {
			to.Enabled = state.Enabled
		}
	})
	return installed, err
}

// Policy reads this machine's policy.
func Policy(a *Agent) (saved.Policy, error) { return a.Records().Policy(a.Path, a.TrustedFile) }

// PolicyError reports that this machine's policy refuses a provider's configuration.
type PolicyError struct{ Err error }

func (e *PolicyError) Error() string { return "cannot use the configuration: " + e.Err.Error() }
func (e *PolicyError) Unwrap() error { return e.Err }

// Accept returns an *OtherNodeError or a *PolicyError if a delivered configuration is refused.
func Accept(h *Home, c config.Config) error {
	if h.Saved.Live != nil {
		if is, given := nameOf(h.Saved.Live.Config), nameOf(c); !strings.EqualFold(is, given) {
			return &OtherNodeError{Is: is, Given: given}
		}
	}
	return permitted(h, c)
}

// permitted returns a *PolicyError if the policy of this machine refuses a delivered configuration.
// A policy that cannot be used refuses everything.
func permitted(h *Home, c config.Config) error {
	p, err := Policy(h.Agent)
	if err != nil {
		return &PolicyError{err}
	}
	var applied *config.Config
	if g := cmp.Or(h.Saved.Applied, h.Saved.Live); g != nil {
		applied = new(h.Saved.ConfigOf(g))
		applied.Node.Kubelet.ServerURL = cmp.Or(applied.Node.Kubelet.ServerURL, h.Saved.Bindings.Server)
	}
	if problems := p.Check(c, applied, config.Defaults()); len(problems) > 0 {
		return &PolicyError{problems}
	}
	return nil
}

// Forget makes the node forget the versions that a provider may not go back from.
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
