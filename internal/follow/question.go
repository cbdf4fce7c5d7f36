package follow

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/AKSFlexNode/api/flexnode/agentapi"
	"github.com/Azure/AKSFlexNode/api/flexnode/sealed"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

const (
	beginLimit = 45 * time.Second // bounds one request in one way to begin a change, and Introduce
	holdLeast  = 10 * time.Second // the min pause before a provider that holds a change is asked again
)

// Question holds the ways to a provider, for requests beside the polls.
type Question struct {
	Resource Resource // without its endpoint, client and token
	Ways     []Manner // tried in order until the provider answers
	Client   func(c config.Config) *http.Client
	Identity Identity
	Keys     Keys
	Alive    func() // called during the work
}

func (q Question) in(m Manner) *Resource {
	r, tokens := q.Resource, Tokens{Identity: q.Identity}
	r.Endpoint, r.Client = m.Endpoint, q.Client(m.Config)
	r.Token = func(ctx context.Context) (string, error) { return tokens.Token(ctx, m.Config) }
	if r.Signer = nil; m.Signs {
		r.Signer = &Signer{Keys: q.Keys}
	}
	return &r
}

// Begin returns a *transition.HoldError unless the node may be disrupted for a configVersion.
func Begin(ctx context.Context, q Question, version string) error {
	hold := &transition.HoldError{Err: errors.New("the node does not follow it")}
	q.each(func(r *Resource) (answers bool) {
		hold = r.begin(ctx, version)
		return hold == nil || hold.Hold != ""
	})
	if hold == nil {
		return nil
	}
	return hold
}

// each calls ask for the ways in order, until the provider answers.
func (q Question) each(ask func(*Resource) (answers bool)) {
	for answers, i := false, 0; i < len(q.Ways) && !answers; i++ {
		if m := q.Ways[i]; m.Asks {
			r := q.in(m)
			answers = ask(r)
			r.Client.CloseIdleConnections()
			q.Alive()
		}
	}
}

// begin asks in one way. It asks again if an answer arrives after the granted time.
func (r *Resource) begin(ctx context.Context, version string) *transition.HoldError {
	ctx, cancel := context.WithTimeout(ctx, beginLimit)
	defer cancel()
	for {
		sent := time.Now()
		var answer agentapi.ChangeBegun
		resp, err := r.post(ctx, "beginChange", agentapi.BeginChange{ConfigVersion: version})
		if err == nil {
			err = resp.decode(&answer, "an answer of beginChange")
		}
		switch granted := time.Duration(answer.GrantedSeconds) * time.Second; {
		case err != nil:
			return &transition.HoldError{Err: err}
		case answer.Hold != "":
			again := time.Duration(min(answer.RetryAfter, int(maxPause/time.Second))) * time.Second
			return &transition.HoldError{
				Hold: shorten(answer.Hold), RetryAt: time.Now().Add(max(again, holdLeast)),
				Err: errors.New(shorten(answer.Reason)),
			}
		case granted <= 0:
			return &transition.HoldError{Err: resp.strange("it neither grants nor holds")}
		case time.Since(sent) < granted:
			return nil
		}
	}
}

// ErrNotFollowed is the error of a node that follows no provider.
var ErrNotFollowed = errors.New("the node follows no resource provider")

// Leave makes the provider delete the Node of this machine.
func Leave(ctx context.Context, q Question) error {
	_, err := q.leave(ctx, agentapi.Leave{}, "request the deletion of the Node from the resource "+
		"provider")
	return err
}

// LeftArc reports to the provider that the Arc machine of a deleted node has left, or the problem.
func LeftArc(ctx context.Context, q Question, machine, problem string) error {
	said := agentapi.Leave{Arc: &agentapi.ArcLeft{MachineID: machine, Problem: problem}}
	_, err := q.leave(ctx, said, "report what is left in Azure Arc to the resource provider")
	return err
}

// ArcSecret returns the secret that enrolled this machine, whose node was deleted, with Arc.
func ArcSecret(ctx context.Context, q Question) (config.Secret, error) {
	key, err := sealed.NewKey()
	if err != nil {
		return "", err
	}
	resp, err := q.leave(ctx, agentapi.Leave{PublicKey: key.Public()},
		"get the secret that has enrolled the machine")
	if err != nil {
		return "", err
	}
	secret, err := q.Resource.opened(key, resp, "an answer of leave")
	return config.Secret(secret), err
}

// leave requests the action leave in one way after the other, until one is answered.
func (q Question) leave(ctx context.Context, ask agentapi.Leave, doing string) (*reply, error) {
	var resp *reply
	err := ErrNotFollowed
	q.each(func(r *Resource) (answers bool) {
		if resp, err = r.post(ctx, "leave", ask); err != nil {
			err = fmt.Errorf("cannot %s: %w", doing, err)
		}
		return err == nil
	})
	return resp, err
}
