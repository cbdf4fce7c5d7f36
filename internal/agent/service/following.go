package service

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/api/flexnode/agentapi"
	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// pollWait is the max time for which the provider may hold a poll until there is something new.
const pollWait = 25 * time.Second

// Following follows the flexNodeConfig of this machine: it polls, stores offers, and reports. A nil
// Following does nothing.
type Following struct {
	Resource *follow.Resource
	// Diagnose runs a diagnosis that the provider requests; may be nil.
	Diagnose func(ctx context.Context, kind string) agentapi.Diagnosed
	Renew    func() // ends this process; systemd starts another

	agent    *change.Agent
	live     *Live
	reporter *follow.Reporter
	// before is the wanted configuration of the machine at the start of the service.
	before            config.Config
	received, deleted chan struct{}
	questions         chan follow.Answer // those that request a diagnosis
	tokens            *follow.Tokens
	signer            *follow.Signer
	// mu guards the following fields. unusable is the last offer if it cannot be used, and judged the
	// rules by which that was decided.
	mu       sync.Mutex
	unusable *agentapi.FailedConfig
	judged   string
	ways     follow.Ways
	again    context.CancelFunc // restarts polling, in the way of ways
}

// settle polls as the node is now configured, and forgets the former way once that works.
func (f *Following) settle(ctx context.Context, h *change.Home) {
	answered := f.change(follow.MannerOf(f.configOf(h)), change.FormerManner(h))
	if !answered || h.Saved.Bindings.Answered == "" {
		return
	}
	inspect.LogError(f.agent.Log, "cannot remove the previous connection to the provider; trying "+
		"again", f.forgetFormer(ctx))
}

// change sets the manners of polling, and reports whether the current one has been answered.
func (f *Following) change(current, former follow.Manner) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if answered, changed := f.ways.Settle(current, former); !changed {
		return answered
	}
	f.agent.Log.Info("the connection to the provider has changed", "asked", current.Asks, "endpoint",
		current.Endpoint, "interval", current.Interval)
	f.again()
	return false
}

// forgetFormer forgets the former way to the provider and its secret, unless the lock is taken.
func (f *Following) forgetFormer(ctx context.Context) error {
	h, err := change.OpenLocked(ctx, f.agent, "agent")
	if change.Verdict(err).Kind == transition.Busy {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.Close()
	if h.Saved.Transition != nil || !f.change(follow.MannerOf(f.configOf(h)), change.FormerManner(h)) {
		return nil
	}
	if h.Saved.Bindings.Answered != h.Saved.AppliedID() {
		delete(h.Saved.Secrets, h.Saved.Bindings.Answered)
	}
	if err := h.Store.SaveSecrets(ctx); err != nil {
		return err
	}
	h.Saved.Bindings.Answered = ""
	return h.Store.SaveBindings(ctx)
}

// begin returns the follower for the next way, if it polls, and within, which ends it.
func (f *Following) begin(ctx context.Context) (polls *follow.Follower, within context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	within, f.again = context.WithCancel(ctx)
	before := f.ways.Asked
	if f.ways.Turn() {
		f.agent.Log.Warn("the provider does not answer on the configured connection; also trying the "+
			"previous one", "endpoint", f.ways.Asked.Endpoint)
	}
	m := f.ways.Asked
	if !m.Asks {
		f.live.update(func() { f.live.work.Polls = nil })
		return nil, within
	}
	f.Resource.Endpoint, f.Resource.Signer = m.Endpoint, nil
	if m.Signs {
		f.Resource.Signer = f.signer
	}
	if m.Signs != before.Signs || !reflect.DeepEqual(m.Proxy, before.Proxy) {
		f.Resource.Client = change.ProviderClient(f.agent, m.Config)
	}
	return &follow.Follower{
		Resource: f.Resource, Machine: f, Wait: pollWait, Log: f.agent.Log,
		Interval: m.Interval, Told: f.polled, Root: func() []byte {
			joined, err := f.agent.Records().Joining()
			inspect.LogError(f.agent.Log, "cannot read the root certificate that this machine trusts", err)
			return joined.Root
		},
	}, within
}

func (f *Following) polled(answer follow.Answer, err error, pause time.Duration) {
	if answer.Diagnose != "" && f.Diagnose != nil {
		tell(f.questions, answer) // unless it is busy
	}
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	invalid, ok := errors.AsType[x509.CertificateInvalidError](err) // also for a CA with the same key
	ended := ok && invalid.Reason == x509.Expired && invalid.Cert.IsCA
	is := f.live.Work()
	if (unknown || ended) && is.Job == "rest" && time.Since(is.Started) > time.Hour {
		f.Renew() // a process reads the system's CAs once, and they may have changed
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ways.Back { // success in the former way does not make the configured one work
		f.live.polled(answer, err, pause)
	}
	if answer.Woken {
		tell(f.received, struct{}{})
	}
	judged := f.judged
	if f.unusable != nil {
		f.judged = rules(f.agent)
	}
	if f.ways.Polled(err) || f.judged != judged {
		f.again()
	}
}

// rules identifies the local decisions about offers. When they change, offers are checked again.
func rules(a *change.Agent) string {
	limits, err := change.Policy(a)
	from, wrong := a.Records().Source()
	return fmt.Sprint(limits.Limits(), err, from.Forgotten, wrong)
}

// Follow returns the Following for this machine's resource; nil if it has none.
func Follow(ctx context.Context, a *change.Agent, in change.Input, live *Live) *Following {
	is := change.ResourceOf(a, in)
	if is.UID == "" {
		return nil
	}
	f := &Following{
		agent: a, live: live, before: in.Config, again: func() {},
		tokens:   &follow.Tokens{Identity: a.Identity},
		signer:   &follow.Signer{Keys: change.MachineKeys(a)},
		received: make(chan struct{}, 1), deleted: make(chan struct{}, 1),
		questions: make(chan follow.Answer, 1),
	}
	c := in.Config
	if h, err := change.OpenReadOnly(ctx, a); err == nil {
		c = f.configOf(h)
	}
	f.ways = follow.NewWays(follow.MannerOf(c))
	f.Resource = &follow.Resource{
		Client: change.ProviderClient(a, c), Token: f.token, ID: is.ID, UID: is.UID,
	}
	f.reporter = follow.NewReporter(f.Resource, a.Log)
	return f
}

// Signals returns two channels: received signals that the configuration on disk has changed, or may
// be applied now, deleted that the owner has deleted the resource.
func (f *Following) Signals() (received, deleted <-chan struct{}) {
	if f == nil {
		return nil, nil
	}
	return f.received, f.deleted
}

func (f *Following) told(s inspect.Status) {
	if f == nil {
		return
	}
	f.mu.Lock()
	asks, unusable := f.ways.Asks(), f.unusable
	f.mu.Unlock()
	if !asks {
		return
	}
	report := reportOf(f.agent, s)
	if unusable != nil {
		report.Config.Observed, report.Config.Failed = unusable.Version, unusable
	}
	f.reporter.Say(fit(report))
}

// Unusable implements follow.Machine: it reports an unusable offer as failed.
func (f *Following) Unusable(version string, why error) {
	if why == nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.unusable = nil
		return
	}
	at := time.Now().UTC().Truncate(time.Second)
	failed := &agentapi.FailedConfig{
		Version: version, Reason: "NotUsable", Message: health.Clip(why.Error(), 4*reportText), At: &at,
	}
	if _, refused := errors.AsType[*change.PolicyError](why); refused {
		failed.Reason = health.RefusedByPolicy
	}
	if _, untrusted := errors.AsType[*follow.UntrustedError](why); untrusted {
		failed.Reason = health.RevisionNotTrusted
	}
	judged := rules(f.agent)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unusable, f.judged = failed, judged
}

// refused returns the offer that this machine has refused; nil if none.
func refused(f *Following) *health.Rejection {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	u := f.unusable
	if u == nil || !f.ways.Asks() {
		return nil
	}
	return &health.Rejection{Version: u.Version, Reason: u.Message, At: *u.At,
		ByPolicy: u.Reason == health.RefusedByPolicy, Untrusted: u.Reason == health.RevisionNotTrusted}
}

// Run follows until ctx ends.
func (f *Following) Run(ctx context.Context) {
	if f == nil {
		return
	}
	for ctx.Err() == nil {
		polls, within := f.begin(ctx)
		if polls == nil {
			<-within.Done()
			continue
		}
		var all sync.WaitGroup
		all.Go(func() { polls.Run(within) })
		all.Go(func() { f.diagnose(within) })
		all.Go(func() { f.reporter.Run(within) })
		all.Wait()
	}
}

// tell sends a value, unless the last one still waits.
func tell[T any](to chan<- T, what T) {
	select {
	case to <- what:
	default:
	}
}

// token returns a token of the running node's identity, as a received one may be wrong.
func (f *Following) token(ctx context.Context) (string, error) {
	f.mu.Lock()
	c := f.ways.Asked.Config
	f.mu.Unlock()
	return f.tokens.Token(ctx, c)
}

// configOf returns the node's configuration, or, for a node from a file, the delivered one.
func (f *Following) configOf(h *change.Home) config.Config {
	if h.Saved.Applied == nil || inspect.Source(h.Node.Env).Applied == (config.Resource{}) {
		return f.before
	}
	return h.Saved.ConfigOf(h.Saved.Applied)
}

// Offers implements follow.Machine.
func (f *Following) Offers() (received, applied config.Resource) {
	from := inspect.Source(&f.agent.Env)
	offer := func(r config.Resource) config.Resource {
		if slices.Contains(from.Forgotten, r) {
			return config.Resource{UID: r.UID}
		}
		return r
	}
	return offer(f.agent.Records().BundleResource()), offer(from.Applied)
}

// Fetch implements follow.Machine.
func (f *Following) Fetch(ctx context.Context) ([]byte, config.Resource, error) {
	token, err := spentToken(ctx, f.agent)
	joined, err2 := f.agent.Records().Joining()
	if err = errors.Join(err, err2); err != nil {
		return nil, config.Resource{}, err
	}
	bundle, err := f.Resource.Bundle(ctx, token != "")
	if err != nil {
		return nil, config.Resource{}, err
	}
	proof, resource, err := follow.Verify(bundle, joined.Root)
	if _, untrusted := errors.AsType[*follow.UntrustedError](err); untrusted {
		return nil, config.Resource{}, err
	}
	if err == nil && !strings.EqualFold(resource.ID, f.Resource.ID) {
		err = errors.New("it does not say that it is of " + f.Resource.ID)
	}
	if err == nil && time.Now().After(proof.Until) {
		f.agent.Log.Warn("the certificate of the provider's key has expired; its operator replaces "+
			"the key with `flexnode-rp keys`", "expired", proof.Until, "signed", proof.Signed)
	}
	if err == nil {
		bundle, err = config.WithToken(bundle, token)
	}
	if err != nil {
		return nil, config.Resource{}, &follow.UnusableError{Err: err}
	}
	bundle, err = config.WithJoining(bundle, joined)
	return bundle, resource, err
}

// spentToken returns the bootstrap token if the node has a certificate and no longer needs it, else
// "". It stays in the configuration, since removing it would change the configuration.
func spentToken(ctx context.Context, a *change.Agent) (config.Secret, error) {
	h, err := change.OpenReadOnly(ctx, a)
	if err != nil || !change.Credentialed(h) {
		return "", err
	}
	data, err := a.Records().Bundle()
	if err != nil {
		return "", err
	}
	return config.TokenOf(data)
}

// Receive implements follow.Machine. Whether the configuration works shows when it is applied. It
// takes no lock, which a change holds for long: only a person with a URL also writes the file.
func (f *Following) Receive(ctx context.Context, bundle []byte) error {
	before, err := inspect.Applied(ctx, &f.agent.Env)
	if err != nil {
		return err
	}
	read, err := config.Read(bundle, before)
	f.agent.Conceal(read.Config.Secrets()...)
	if err != nil {
		return &follow.UnusableError{Err: err}
	}
	h, err := change.OpenReadOnly(ctx, f.agent)
	if err != nil {
		return err
	}
	err = change.Accept(h, read.Config)
	_, other := errors.AsType[*change.OtherNodeError](err)
	if _, refused := errors.AsType[*change.PolicyError](err); other || refused {
		return &follow.UnusableError{Err: err}
	}
	if err == nil {
		f.agent.Bundle.Lock()
		var joined config.Joining
		joined, err = f.agent.Records().Joining()
		if err == nil && !reflect.DeepEqual(joined, config.JoiningOf(bundle)) {
			err = errors.New("another configuration URL was used meanwhile")
		}
		if err == nil {
			err = h.Store.KeepBundle(ctx, bundle, read.Config)
		}
		f.agent.Bundle.Unlock()
	}
	if err != nil {
		return err
	}
	f.Unusable("", nil)
	f.agent.Log.Info("configuration received", "version", read.Resource.ConfigVersion)
	tell(f.received, struct{}{})
	return nil
}

// Deleted implements follow.Machine. If the policy cannot be used, it waits for a person.
func (f *Following) Deleted() (leaves bool) {
	limits, err := change.Policy(f.agent)
	if err != nil {
		f.agent.Log.Error("the machine is not restored until an operator confirms it", "error", err)
	}
	switch {
	case err != nil, limits.Confirms():
		kept(f.live, health.DeletionWaits)
	case limits.Keeps():
		kept(f.live, health.RefusedByPolicy)
	default:
		tell(f.deleted, struct{}{})
		return true
	}
	return false
}
