package follow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/Azure/AKSFlexNode/api/flexnode/agentapi"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/identity"
	"github.com/Azure/AKSFlexNode/internal/machinekey"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// Keys are the key of this machine, the secret that registers it, and the id of its boot.
type Keys interface {
	// MachineKey returns the key; the first call makes it.
	MachineKey(ctx context.Context) (*machinekey.Key, error)
	// EnrolmentSecret returns that of the bundle; "" for none.
	EnrolmentSecret() (string, error)
	// SignAsKubelet signs a statement as the node's kubelet; nil while that has no certificate.
	SignAsKubelet(ctx context.Context, statement []byte) (certificate, signature []byte, err error)
	// BootID returns the id of the machine's boot, which is made once in each.
	BootID() (string, error)
}

// Signer signs requests to a provider's own listener as the machine. Several goroutines may use it.
type Signer struct {
	Keys Keys

	mu sync.Mutex
	// nonce is the last one that the provider has given; "" while its clock agrees with ours.
	nonce string
	poll  signedPoll
}

// signedPoll is the token of polls, which is used again until shortly before it ends.
type signedPoll struct {
	claims machinekey.Claims
	key    string // the thumbprint
	token  string
	made   time.Time // on the monotonic clock
}

const pollsFor = machinekey.Lifetime - time.Minute // for how long a token of polls is used

// sign returns a token for a request, or, with the zero value, for polls.
func (s *Signer) sign(ctx context.Context, c machinekey.Claims) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, err := s.Keys.MachineKey(ctx) // another command may have replaced it
	if err != nil {
		return "", err
	}
	boot, err := s.Keys.BootID()
	if err != nil {
		return "", err
	}
	c.Nonce, c.Boot = s.nonce, boot
	polls := c.Request == machinekey.Request{}
	if polls && s.poll.claims == c && s.poll.key == key.Thumbprint() &&
		time.Since(s.poll.made) < pollsFor {
		return s.poll.token, nil
	}
	now := time.Now()
	token, err := key.Sign(c, now)
	if err == nil && polls {
		s.poll = signedPoll{c, key.Thumbprint(), token, now}
	}
	return token, err
}

// challenged takes in an answer's nonce, and reports whether the request is to be sent again.
func (s *Signer) challenged(resp *reply) bool {
	nonce := resp.Header.Get(machinekey.NonceHeader)
	if resp.StatusCode != http.StatusUnauthorized || nonce == "" {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nonce = nonce
	return true
}

func (r *Resource) claims() machinekey.Claims {
	return machinekey.Claims{UID: r.UID, Audience: strings.TrimRight(r.Endpoint, "/")}
}

// authorize signs a request, or gives it a token of the node's identity in Azure.
func (r *Resource) authorize(ctx context.Context, req *http.Request, body []byte) error {
	scheme, token, err := "Bearer", "", error(nil)
	if r.Signer == nil {
		token, err = r.Token(ctx)
	} else {
		c := r.claims()
		if req.Method != http.MethodGet {
			c.Request = machinekey.RequestOf(req.Method, req.URL.Path, body)
		}
		scheme = machinekey.Scheme
		token, err = r.Signer.sign(ctx, c)
	}
	if err == nil {
		req.Header.Set("Authorization", scheme+" "+token)
	}
	return err
}

// The codes of the provider's answers about keys.
const (
	notRegistered = "MachineKeyNotRegistered"
	secondMachine = "SecondMachine"
)

func (r *reply) hasCode(code string) bool {
	var answer struct{ Error struct{ Code string } }
	return r.StatusCode >= 400 && json.Unmarshal(r.json, &answer) == nil && answer.Error.Code == code
}

// unknown reports whether the provider does not know this machine, whose key may not be registered.
func (r *reply) unknown() bool { return r.hasCode(notRegistered) || r.hasCode(secondMachine) }

// IsSecond reports whether the provider refuses this machine since another one is the node.
func IsSecond(err error) bool {
	refused, ok := errors.AsType[*RefusedError](err)
	return ok && refused.Code == secondMachine
}

const registerAction = "registerKey"

// register registers this machine's key: by the bundle's enrolment secret, or by the node's
// identity in Azure. With a secret no token is shown: another server could ask for that.
func (r *Resource) register(ctx context.Context) error {
	secret, err := r.Signer.Keys.EnrolmentSecret()
	if err != nil {
		return err
	}
	if secret == "" {
		err = r.registerAsIdentity(ctx)
	} else {
		err = r.registerWith(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("cannot register the machine's key: %w", err)
	}
	return nil
}

// registerWith registers the key by a secret, and kubelet: a restored provider may know neither.
func (r *Resource) registerWith(ctx context.Context, secret string) error {
	key, err := r.Signer.Keys.MachineKey(ctx)
	if err != nil {
		return err
	}
	ask := agentapi.RegisterKey{EnrolmentSecret: secret}
	certificate, signature, err := r.Signer.Keys.SignAsKubelet(ctx,
		machinekey.Statement(r.UID, key.Thumbprint()))
	if err == nil && certificate != nil { // one that cannot be used proves nothing
		ask.Kubelet = &agentapi.KubeletProof{Certificate: certificate, Signature: signature}
	}
	_, err = r.post(ctx, registerAction, ask)
	return err
}

// Introduce tells the provider who the node's identity in Azure is in the cluster.
func Introduce(ctx context.Context, q Question, principal string) error {
	r := q.in(q.Ways[0])
	defer r.Client.CloseIdleConnections()
	q.Alive()
	ctx, cancel := context.WithTimeout(ctx, beginLimit)
	defer cancel()
	_, err := r.Poll(ctx, "", 0) // which registers the key, where the provider does not know it
	if err != nil {
		return err
	}
	_, err = r.post(ctx, registerAction, agentapi.RegisterKey{PrincipalID: principal})
	return err
}

func (r *Resource) registerAsIdentity(ctx context.Context) error {
	c := r.claims()
	req, err := r.request(ctx, http.MethodPost, "/"+registerAction, nil)
	if err != nil {
		return err
	}
	c.Request = machinekey.RequestOf(req.Method, req.URL.Path, nil) // the body has the token
	token, err := r.Signer.sign(ctx, c)
	if err != nil {
		return err
	}
	as := *r
	as.Signer = nil
	_, err = as.post(ctx, registerAction, agentapi.RegisterKey{MachineToken: token})
	return err
}

// Identity makes the credential of the node's own identity in Azure.
type Identity func(c config.Config) (identity.Credential, error)

// NodeIdentity makes the credential that a configuration names.
func NodeIdentity(c config.Config) (identity.Credential, error) {
	return identity.Node(c.Azure, c.ProxyFunc())
}

// Tokens are those with which the provider is asked. They may be asked for by several goroutines.
type Tokens struct {
	Identity Identity

	// mu guards both, also while a token is asked for, which may take minutes.
	mu         sync.Mutex
	key        string // of the identity of credential
	credential identity.Credential
}

// Token returns a token of the node's identity in a configuration.
func (t *Tokens) Token(ctx context.Context, c config.Config) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key, err := identity.Key(c.Azure)
	if err != nil {
		return "", err
	}
	if t.credential == nil || key != t.key {
		if t.credential, err = t.Identity(c); err != nil {
			return "", err
		}
		t.key = key
	}
	scope, err := Scope(c)
	if err != nil {
		return "", err
	}
	token, err := t.credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
	if err != nil {
		return "", identity.Explain(err, identity.TokenFor("the resource provider", c.Azure))
	}
	return token.Token, nil
}

// Prove makes sure that the provider answers a node in the first of the ways: one poll with the
// registered key, or with a fresh token, past every cache. A refusal is a transition.Refused; any
// other error leaves open whether it answers.
func Prove(ctx context.Context, q Question) error {
	m := q.Ways[0]
	if !m.Asks || q.Resource.UID == "" {
		return nil
	}
	r := q.in(m)
	r.Trial = true
	if r.Signer == nil {
		if err := r.proveToken(ctx, q, m.Config); err != nil {
			return err
		}
	}
	q.Alive()
	defer r.Client.CloseIdleConnections()
	_, err := r.Poll(ctx, "", 0)
	if refusesNode(err) {
		return &transition.Outcome{Kind: transition.Refused, Err: fmt.Errorf("cannot follow the "+
			"resource with this configuration: %w; check agent.monitoring.endpoint, the proxy and the "+
			"identity in azure", err)}
	}
	return err
}

// proveToken asks Azure for a fresh token, with which the resource is asked then.
func (r *Resource) proveToken(ctx context.Context, q Question, c config.Config) error {
	scope, err := Scope(c)
	if err != nil {
		return err
	}
	token, err := identity.Fresh(ctx, func() (identity.Credential, error) { return q.Identity(c) },
		scope, identity.TokenFor("the resource provider", c.Azure))
	if identity.Refused(err) {
		return &transition.Outcome{Kind: transition.Refused, Err: err}
	}
	r.Token = func(context.Context) (string, error) { return token.Value, nil }
	return err
}
