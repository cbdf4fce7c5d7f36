package credential

import (
	"fmt"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// The states of a credential and what moves it, from the row that is written to the row that is
// gone:
//
//	Pending --Secret and bundle are there--> Live --first request--> Consumed --issued + Grace--+
//	   |                                      |                         |                       |
//	   +--- replaced, deleted, expired -------+--- deleted, too late ---+--> Revoking <---------+
//	                                                                            |
//	                                                            Secret and bundle are gone: no row

// Due is the state that a credential should be in at a time, and when time alone changes that; the
// zero time is never. wanted reports whether its node still refers to it.
func Due(c store.Credential, wanted bool, now time.Time) (state string, next time.Time) {
	switch c.State {
	case store.Pending, store.Live:
		if !wanted || !now.Before(c.Expires) {
			return store.Revoking, time.Time{}
		}
		return c.State, c.Expires
	case store.Consumed: // its node may refer to another by now; the machine that joins finishes
		next = earliest(c.Expires, c.Since.Add(Joining))
		if c.Issued != nil {
			next = earliest(next, c.Issued.Add(Grace))
		}
		if !now.Before(next) {
			return store.Revoking, time.Time{}
		}
		return c.State, next
	}
	return c.State, time.Time{}
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Application is a request for a node's certificate by a holder of a bootstrap token, as far as a
// decision needs it.
type Application struct {
	TokenID string
	Node    string // the Node it is for; "" when it is not for the client certificate of one
	KeyHash string // of its public key
	Flaw    string // why it cannot be approved, regardless of the caller
	Name    string // of the request
}

// Decide reports whether an application by the token of a credential is approved, and if not, why.
// known reports whether there is a credential with that token.
func Decide(a Application, c store.Credential, known bool) (approved bool, why string) {
	switch {
	case !known:
		return false, "its bootstrap token is not known to the resource provider"
	case c.State == store.Pending:
		return false, "its bootstrap token has not been handed out yet"
	case c.State == store.Revoking:
		return false, "its bootstrap token has been revoked"
	case a.Flaw != "":
		return false, a.Flaw
	case a.Node != flexnode.LastOf(c.Node):
		return false, fmt.Sprintf("its bootstrap token is for the node %s, not for %s",
			flexnode.LastOf(c.Node), a.Node)
	case c.State == store.Consumed && c.KeyHash != a.KeyHash:
		return false, "its bootstrap token was used by another machine"
	}
	return true, ""
}

// Told returns the part of a credential that the status of its node shows.
func Told(c store.Credential) flexnode.JoinCredential {
	return flexnode.JoinCredential{
		Made: c.State != store.Pending, Ended: c.State == store.Revoking,
		Used:   c.State == store.Consumed || c.KeyHash != "" || c.Issued != nil,
		Issued: c.Issued != nil, Expires: c.Expires, Denied: c.Denied, Problem: c.Problem,
	}
}
