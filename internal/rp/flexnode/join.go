package flexnode

import (
	"cmp"
	"fmt"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// JoinCredential describes the credential that a machine joins with.
type JoinCredential struct {
	// Made reports that its URL answers, Used that a machine has used it, Ended that it is revoked.
	Made, Used, Ended bool
	// Issued reports that a machine received what it requested with it.
	Issued  bool
	Expires time.Time
	// Denied is the reason of the last denied certificate request, Problem the reason that the
	// credential cannot be made.
	Denied, Problem string
}

// JoinEnd describes the end of a credential that no machine joined with. It is kept for the owner,
// who may have handed out its URL.
type JoinEnd struct {
	State   string    `json:"state"` // api.JoinExpired, api.JoinDenied or api.JoinConsumed
	Expires time.Time `json:"expires"`
	Reason  string    `json:"reason,omitempty"`
}

// again is the advice to an owner whose node has no credential left to join with.
const again = "POST regenerateToken to create another URL."

// End returns the end of a credential that its node refers to; nil if a machine has joined with it.
func (c JoinCredential) End() *JoinEnd {
	switch {
	case c.Issued:
		return nil
	case c.Used:
		return &JoinEnd{api.JoinConsumed, c.Expires, "A machine has used it, but received no " +
			"certificate in time. Check the machine; " + again}
	case c.Denied != "":
		return &JoinEnd{api.JoinDenied, c.Expires, denied(c.Denied)}
	}
	return &JoinEnd{api.JoinExpired, c.Expires, "No machine has used it in time. " + again}
}

func denied(why string) string {
	return fmt.Sprintf("A certificate request was denied: %s. Use the configuration of this node "+
		"on one machine alone; %s", shorten(why), again)
}

// joinOf returns the progress of the join; nil if nothing was issued, or it is not known.
func (e Evidence) joinOf() *api.Join {
	if c := e.Credential; c != nil {
		return c.join(e.registered())
	}
	end := e.Node.Ended
	switch {
	case e.registered():
		return &api.Join{State: api.JoinJoined}
	case e.Node.Credential != "" || end == nil:
		return nil
	}
	return &api.Join{State: end.State, Expires: &end.Expires, Reason: end.Reason}
}

func (c JoinCredential) join(registered bool) *api.Join {
	expires := c.Expires.UTC()
	j := &api.Join{Expires: &expires}
	switch end := c.End(); {
	case c.Used && c.Issued && registered:
		return &api.Join{State: api.JoinJoined}
	case c.Used:
		j.State, j.Reason = api.JoinConsumed, "A machine has used it; its Node does not exist yet."
		if c.Denied != "" {
			j.Reason += " " + denied(c.Denied)
		}
	case c.Ended && end != nil:
		j.State, j.Reason = end.State, end.Reason
	case c.Denied != "":
		j.State, j.Reason = api.JoinDenied, denied(c.Denied)
	case c.Made:
		j.State, j.Reason = api.JoinReady, "The URL waits for a machine."
	default:
		j.State, j.Reason = api.JoinPending, cmp.Or(c.Problem, "It is being created in the cluster.")
	}
	return j
}
