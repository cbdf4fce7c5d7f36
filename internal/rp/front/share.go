package front

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// recognize marks a request from a node about itself, by the index: it counts as the node's, not as
// its identity's, which many nodes may share.
func (a *API) recognize(r *request) error {
	if !r.route.own {
		return nil
	}
	uid := r.Header.Get(uidHeader)
	if uid != "" && !flexnode.IsGUID(uid) {
		return arm.Errorf(400, "InvalidHeaderValue", "The value '%s' of the header %s is not a uid.",
			shorten(uid), strings.ToLower(uidHeader))
	}
	if r.uid = strings.ToLower(uid); r.caller.isMachine() {
		if uid != "" && r.uid != r.caller.UID {
			return badToken("It is of another node.")
		}
		r.uid = r.caller.UID
	}
	r.byNode = a.ownNode(r)
	if r.caller.Trusted {
		// Any caller may name the uid, and many nodes may share an identity: it takes both.
		r.own, r.node = false, r.node && uid != ""
		r.byNode = r.node
	}
	return nil
}

func (r *request) kind() fair.Kind {
	switch {
	case r.route.many:
		return fair.Lists
	case r.Method == http.MethodDelete:
		return fair.Deletes
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return fair.Writes
	}
	return fair.Reads
}

func (r *request) class() fair.Class {
	switch kind := r.kind(); {
	case r.byNode && r.route.bucket != "":
		return fair.ForNodeStore
	case r.byNode:
		return fair.ForNodes
	case kind == fair.Reads:
		return fair.ForReads
	case kind == fair.Lists:
		return fair.ForLists
	}
	return fair.ForWrites
}

// throttle refuses a request of a caller that has sent too many lately, before its permission is
// checked. Resource Manager's own requests are never refused: no caller can cause more of them.
func (a *API) throttle(r *request) error {
	switch {
	case r.route.managerOnly:
		return nil
	case r.byNode:
		return a.take(r, fair.Bucket{Of: fair.Node, Kind: fair.All, ID: r.nodeKey()}, 0)
	}
	return a.take(r, fair.Bucket{Of: fair.Principal, Kind: r.kind(), ID: r.principal()}, 0)
}

// throttleAllowed refuses an authorized request if its subscription has sent too many, not counting
// public ones, or if it uses the store and there were too many such requests about the node. Other
// callers than the node have a bucket of their own there.
func (a *API) throttleAllowed(r *request) error {
	if !r.byNode && r.route.permission != "" {
		of := fair.Bucket{Of: fair.Subscription, Kind: r.kind(), ID: r.subscriptionKey()}
		if err := a.take(r, of, 0); err != nil {
			return err
		}
	}
	if r.route.bucket == "" {
		return nil
	}
	key := r.nodeKey()
	if !r.byNode {
		key += " " + r.principal()
	} else if err := a.throttleStored(r); err != nil {
		return err
	}
	return a.take(r, fair.Bucket{Of: fair.Node, Kind: r.route.bucket, ID: key}, 0)
}

// throttleStored refuses a node's request that uses the store if the nodes of its subscription, or
// those that share its identity, have sent too many. No two share a machine's key.
func (a *API) throttleStored(r *request) error {
	shared := []string{r.subscriptionKey()}
	if !r.caller.isMachine() {
		shared = append(shared, r.principal())
	}
	used, _ := a.Index.Used(r.subscriptionKey())
	for _, id := range shared {
		of := fair.Bucket{Of: fair.Node, Kind: fair.Stored, ID: id}
		if err := a.take(r, of, used.Nodes); err != nil {
			return err
		}
	}
	return nil
}

// AdmitDelivery waits for a place for a request with a configuration URL, by the key of its
// credential; leave gives the place back. Without one, again is the time to wait before a retry.
func (a *API) AdmitDelivery(
	ctx context.Context, credential string,
) (leave func(), again time.Duration) {
	of := fair.Bucket{Of: fair.Node, Kind: fair.Deliveries, ID: credential}
	if v := a.Throttle.Take(of, 0); v.After > 0 {
		return nil, v.After
	}
	subscription, _, _ := strings.Cut(credential, "/")
	place, err := a.Gate.Enter(ctx, fair.ForNodeStore, subscription)
	if err != nil {
		return nil, arm.RetryLater
	}
	return place.Leave, 0
}

func (r *request) principal() string {
	switch {
	case r.route.open:
		return "anybody" // one bucket for what is public
	case r.caller.isMachine():
		return "machines at " + r.address() + " of " + r.subscriptionKey()
	case r.caller.ObjectID != "":
		return arm.Fold(r.caller.ObjectID)
	}
	return arm.Fold(r.caller.AppID)
}

// take takes from a bucket of so many nodes; an error if it is empty. People see the rest.
func (a *API) take(r *request, of fair.Bucket, nodes int) error {
	v := a.Throttle.Take(of, nodes)
	if v.Limited && of.Of != fair.Node {
		r.answer.Header().Add("x-ms-ratelimit-remaining-resource",
			fmt.Sprintf("%s/%s%s;%d", namespace, of.Of, of.Kind, v.Left))
	}
	if v.After == 0 {
		return nil
	}
	if v.Begun {
		a.Log.Info("a caller asks too much", "caller", r.caller.Name, "object", r.caller.ObjectID,
			"kind", of.Kind, "path", flexnode.Cut(r.URL.Path, auditedPath))
	}
	return &refusal{after: v.After, answer: arm.Errorf(http.StatusTooManyRequests, "TooManyRequests",
		"Number of '%s' requests for subscription '%s' actor '%s' exceeded. Please try again "+
			"after '%.0f' seconds, when additional tokens are available. The limit is %d requests "+
			"at once, and %g in a second after that.",
		of.Kind, r.name("subscription"), r.caller.ObjectID, math.Ceil(v.After.Seconds()), v.Of.Burst,
		v.Of.PerSecond)}
}

func (a *API) enter(r *request) (err error) {
	r.place, err = a.Gate.Enter(r.Context(), r.class(), r.subscriptionKey())
	return err
}

// askStore waits for a place among the requests of nodes that use the store, if this is one.
func (r *request) askStore() error {
	if !r.byNode {
		return nil
	}
	if err := r.listener.api.throttleStored(r); err != nil {
		return err
	}
	return r.place.Move(r.Context(), fair.ForNodeStore)
}

// hurry limits the time for which a refused caller with an unread body can hold the connection.
func hurry(w http.ResponseWriter, r *request) {
	if !r.bodyRead && r.ContentLength != 0 {
		// If this fails, the connection is closed at its own deadline.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Second))
	}
}
