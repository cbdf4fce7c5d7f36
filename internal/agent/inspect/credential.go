package inspect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// ArcFile is the record of the enrolment, in saved.StateDir.
const ArcFile = access.RecordFile

// ArcKey is the key of the enrolment as a thing that can drift.
const ArcKey state.Key = "arc:machine"

// arcEvidence asks the Arc agent, and not Azure, for the machine's registration. It reuses a slow
// answer for a while, unless the machine has to be enrolled again.
func arcEvidence(ctx context.Context, h *Node, c config.Config) health.Answer[health.Arc] {
	if c.Azure.AuthMode() != config.AuthArc {
		return health.Answer[health.Arc]{}
	}
	if last := h.shown; last.answer.Asked && time.Since(last.at) < arcStands {
		return last.answer
	}
	began := time.Now()
	is := health.Answered(access.Standing(ctx, h, h.Saved, c))
	h.shown = shownArc{}
	if time.Since(began) > arcSlow && !is.Value.Lost {
		h.shown = shownArc{answer: is, at: time.Now()}
	}
	return is
}

// arcSlow is the time from which an answer is slow, arcStands the time for which it is reused.
const arcSlow, arcStands = 3 * time.Second, 10 * time.Minute

type shownArc struct {
	answer health.Answer[health.Arc]
	at     time.Time
}

func roleEvidence(
	ctx context.Context, h *Node, at Cluster, e *health.Evidence,
) health.Answer[bool] {
	c := e.Wanted.Config
	if c.Azure.AuthMode() != config.AuthArc || !c.Azure.ShowsToken() ||
		!e.Node.OK() && !kube.Answered(e.Node.Err) {
		return health.Answer[bool]{}
	}
	token, err := access.Shown(ctx, h, c)
	if err != nil {
		return health.Answer[bool]{}
	}
	return health.Answered(access.Authorised(ctx, h, c, at, token))
}

// arcLost describes the failure of an enrolment that must be repeated; "" if it need not be.
func arcLost(e health.Evidence) string {
	switch {
	case e.Arc.OK() && e.Arc.Value.Lost:
		return "not accepted by Azure"
	case e.Authorised.OK() && !e.Authorised.Value:
		return "without its roles"
	}
	return ""
}

// withArc adds evidence of the applied node's enrolment; e must have the Node.
func withArc(ctx context.Context, h *Node, e *health.Evidence) {
	if h.Saved.Applied.Config.Azure.AuthMode() != config.AuthArc {
		return
	}
	e.Wanted.Config = h.Saved.ConfigOf(h.Saved.Applied)
	e.Arc = health.Answered(access.Standing(ctx, h, h.Saved, e.Wanted.Config))
	e.Authorised = roleEvidence(ctx, h, h.Saved.At(), e)
}

// ArcLost reports whether the applied node must be enrolled again.
func ArcLost(ctx context.Context, h *Node) bool {
	if h.Saved.Applied == nil || h.Saved.Applied.Config.Azure.AuthMode() != config.AuthArc {
		return false
	}
	e := health.Evidence{Node: SeeNode(ctx, h)}
	withArc(ctx, h, &e)
	return arcLost(e) != ""
}

// WithArc sets in the bindings whose the Arc agent is, for nodes that have one. It is ours if it is
// in the ledger, or not installed yet.
func WithArc(
	ctx context.Context, h *Node, d state.Desired, b node.Bindings,
) (node.Bindings, error) {
	if !slices.ContainsFunc(d, func(item state.Item) bool { return item.Only == node.OwnArc }) {
		return b, nil
	}
	key := state.PackageKey(node.ArcPackage)
	_, ours := h.ledger.Ledger().Entry(key)
	if b.ForeignArc = !ours; ours {
		return b, nil
	}
	is, err := h.Reader.Observe(ctx, key)
	if err == nil {
		b.ForeignArc = is.(state.Package).State == state.PackageInstalled
	}
	return b, err
}

// StandingArc returns our Arc agent as wanted: only leaving undoes its registration.
func StandingArc(h *Node) state.Desired {
	return h.ledger.Ledger().As(func(e state.Entry) bool { return e.Step == state.Arc })
}

// EnrolledBefore reports whether an earlier run has enrolled the machine with Arc.
func EnrolledBefore(h *Node) bool {
	record, err := access.Record(h.Saved)
	return err == nil && record.MachineID != "" && h.Saved.Live != nil
}

// WithServing adds the validity of kubelet's serving certificate, if the cluster issues it.
func WithServing(h *Node, e *health.Evidence) {
	if !e.Wanted.Node.Kubelet.ServerTLSBootstrap {
		return
	}
	is, err := access.Validity(h, access.ServingCertificate(e.Wanted.Config))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	e.Serving = health.Answered(is, err)
}

func expiries(h *Node, c config.Config) map[string]time.Time {
	found := map[string]time.Time{}
	for name, of := range map[string]struct {
		used bool // else kubelet leaves the file as it is
		file string
	}{
		"kubelet-client": {!c.Azure.ShowsToken(), access.ClientCertificate(c)},
		"kubelet-server": {c.Node.Kubelet.ServerTLSBootstrap, access.ServingCertificate(c)},
	} {
		if is, err := access.Validity(h, of.file); err == nil && of.used {
			found[name] = is.To.UTC()
		}
	}
	if sp := principal(c); sp != nil {
		if is, err := access.PrincipalValidity(*sp); err == nil {
			found["principal"] = is.To.UTC()
		}
	}
	return found
}

// principal returns the service principal, if its credential's expiry is known and matters.
func principal(c config.Config) *config.ServicePrincipal {
	sp := c.Azure.ServicePrincipal
	if sp == nil || sp.CertificateFile == "" && sp.SecretExpires == "" ||
		c.Azure.AuthMode() == config.AuthArc {
		return nil
	}
	return sp
}

// Token returns kubelet's token for the API server, from the cache or the issuer. It uses the live
// generation, so a rollback changes it before it waits for anything.
func Token(ctx context.Context, a *Env) (access.Token, error) {
	h := NewNode(a, nil)
	c, err := live(ctx, h)
	if err != nil {
		return access.Token{}, err
	}
	return access.Cached(ctx, h, c)
}

// Images answers kubelet's requests for image credentials with the live generation's identity.
func Images(ctx context.Context, a *Env) (access.Images, error) {
	h := NewNode(a, nil)
	c, err := live(ctx, h)
	return access.Images{Dir: h.Path(config.RunDir), Azure: c.Azure, Proxy: c.ProxyFunc()}, err
}

func live(ctx context.Context, h *Node) (config.Config, error) {
	id, err := h.Saved.Generations.Target(ctx, generation.Live)
	if err == nil && id == "" {
		err = fmt.Errorf("cannot make a token: %w", ErrNoNode)
	}
	if err == nil {
		_, err = h.Saved.Load(saved.SecretsFile, &h.Saved.Secrets)
	}
	if err != nil {
		return config.Config{}, err
	}
	c, err := h.Saved.Generations.Config(id)
	return c.WithCredentials(h.Saved.Secrets[id]), err
}

// Cluster is the address of an API server and the certificates that verify it.
type Cluster = transition.Cluster

// Allowed checks that the cluster authorises the configured identity to join.
func Allowed(ctx context.Context, h *Node, c config.Config, at Cluster) error {
	arc := c.Azure.AuthMode() == config.AuthArc && !EnrolledBefore(h)
	if c.Azure.BootstrapToken != nil || arc || access.Held(h, c) && !c.Azure.ShowsToken() {
		return nil
	}
	token, err := access.JoinToken(ctx, c)
	if err != nil {
		return err
	}
	if ok, err := access.Authorised(ctx, h, c, at, token); err != nil || ok {
		return err
	}
	_, role := access.Required(c)
	return fmt.Errorf("cannot join the cluster: the configured identity is not authorised and "+
		"needs %s; a role assignment takes some minutes to take effect", role)
}
