package follow

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
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

// Keys provides the key of this machine, the secret that registers it, and its boot id.
type Keys interface {
	MachineKey(ctx context.Context) (*machinekey.Key, error) // created by the first call
	EnrolmentSecret() (string, error)                        // in the bundle; "" for none
	// SignAsKubelet signs a statement as the node's kubelet; nil while kubelet has no certificate.
	SignAsKubelet(ctx context.Context, statement []byte) (certificate, signature []byte, err error)
	BootID() (string, error) // of the current boot
}

// Signer signs requests to a provider's own listener as the machine. It is safe for concurrent use.
type Signer struct {
	Keys Keys

	mu    sync.Mutex
	nonce string // the provider's last; "" while its clock agrees with ours
	poll  signedPoll
}

// signedPoll is the token for polls, which is reused until shortly before it expires.
type signedPoll struct {
	claims machinekey.Claims
	key    string // the thumbprint
	token  string
	made   time.Time // on the monotonic clock
}

const pollsFor = machinekey.Lifetime - time.Minute // how long a token for polls is used

// sign returns a token for a request, or, for the zero value, for polls.
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
	token := key.Sign(c, now)
	if polls {
		s.poll = signedPoll{c, key.Thumbprint(), token, now}
	}
	return token, nil
}

// challenged stores an answer's nonce, and reports whether to send the request again.
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

// authorize signs a request, or adds a token of the node's Azure identity.
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

// The provider's error codes about keys.
const notRegistered, secondMachine = "MachineKeyNotRegistered", "SecondMachine"

// IsSecond reports whether the provider refuses this machine because another one is the node.
func IsSecond(err error) bool {
	refused, ok := errors.AsType[*RefusedError](err)
	return ok && refused.Code == secondMachine
}

const registerAction = "registerKey"

// register registers this machine's key: with the bundle's enrolment secret, or with the node's
// Azure identity. With a secret it sends no token, which another server could ask for.
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

// registerWith registers the key with a secret, and kubelet: a restored provider may know neither.
func (r *Resource) registerWith(ctx context.Context, secret string) error {
	key, err := r.Signer.Keys.MachineKey(ctx)
	if err != nil {
		return err
	}
	ask := agentapi.RegisterKey{EnrolmentSecret: secret}
	certificate, signature, err := r.Signer.Keys.SignAsKubelet(ctx,
		machinekey.Statement(r.UID, key.Thumbprint()))
	if err != nil { // without the proof the provider would revoke kubelet's certificate
		return err
	}
	if certificate != nil {
		ask.Kubelet = &agentapi.KubeletProof{Certificate: certificate, Signature: signature}
	}
	_, err = r.post(ctx, registerAction, ask)
	return err
}

// Introduce tells the provider which user of the cluster the node's Azure identity is.
func Introduce(ctx context.Context, q Question, principal string) error {
	r := q.in(q.Ways[0])
	defer r.Client.CloseIdleConnections()
	q.Alive()
	ctx, cancel := context.WithTimeout(ctx, beginLimit)
	defer cancel()
	if _, err := r.Poll(ctx, "", 0); err != nil { // this registers a key unknown to the provider
		return err
	}
	_, err := r.post(ctx, registerAction, agentapi.RegisterKey{PrincipalID: principal})
	return err
}

func (r *Resource) registerAsIdentity(ctx context.Context) error {
	c := r.claims()
	at, err := url.Parse(r.url("/" + registerAction))
	if err != nil {
		return withoutURL(err)
	}
	c.Request = machinekey.RequestOf(http.MethodPost, at.Path, nil) // the token is in the body
	token, err := r.Signer.sign(ctx, c)
	if err != nil {
		return err
	}
	as := *r
	as.Signer = nil
	_, err = as.post(ctx, registerAction, agentapi.RegisterKey{MachineToken: token})
	return err
}

// Identity returns the credential of the node's own Azure identity.
type Identity func(c config.Config) (identity.Credential, error)

// NodeIdentity returns the credential of the identity in a configuration.
func NodeIdentity(c config.Config) (identity.Credential, error) {
	return identity.Node(c.Azure, c.ProxyFunc())
}

// Tokens gets the tokens for the provider. It is safe for concurrent use.
type Tokens struct {
	Identity Identity

	// mu guards both fields; it is held while a token is requested, which may take minutes.
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
		t.credential = nil // a managed identity's is bound to the service that it has found at first
		return "", identity.Explain(err, identity.TokenFor("the resource provider", c.Azure))
	}
	return token.Token, nil
}

// Prove checks that the provider answers a node in the first of the ways, by one poll with the
// registered key or with a fresh token that bypasses all caches. A refusal is a transition.Refused;
// other errors prove nothing.
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

// proveToken requests a fresh token from Azure, which is then used for the resource.
func (r *Resource) proveToken(ctx context.Context, q Question, c config.Config) error {
	scope, err := Scope(c)
	if err != nil {
		return err
	}
	token, err := identity.Proved(ctx, func() (identity.Token, error) {
		return identity.Fresh(ctx, func() (identity.Credential, error) { return q.Identity(c) }, scope,
			identity.TokenFor("the resource provider", c.Azure))
	})
	if identity.Refused(err) {
		return &transition.Outcome{Kind: transition.Refused, Err: err}
	}
	r.Token = func(context.Context) (string, error) { return token.Value, nil }
	return err
}
