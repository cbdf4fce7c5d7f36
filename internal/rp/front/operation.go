package front

import (
	"context"
	"encoding/base32"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// The kinds of operations (flexnode.Operation.Kind). Only a deletion has a row, which the cluster's
// reconciler writes; the progress of the others follows from their targets.
const (
	putNodeKind       = "putNode"
	regenerateKind    = "regenerateToken"
	putClusterKind    = "putCluster"
	deleteClusterKind = "deleteCluster"
)

// inProgress is the state of an operation that has not ended (RPC, asynchronous operations).
const inProgress = "InProgress"

// operationStatus is the answer of operationStatuses (RPC, Azure-AsyncOperation resource format).
type operationStatus struct {
	ID              string     `json:"id"`
	Name            string     `json:"name"`
	ResourceID      string     `json:"resourceId"`
	Status          string     `json:"status"`
	StartTime       time.Time  `json:"startTime"`
	EndTime         time.Time  `json:"endTime,omitzero"`
	PercentComplete *int       `json:"percentComplete,omitempty"`
	Error           *arm.Error `json:"error,omitempty"`
}

// accept adds the URLs of an operation that continues after the answer (pointTo). It writes no row:
// the URL holds the operation, signed by its id, and the target the progress.
func (a *API) accept(r *request, target flexnode.Operation, only bool) {
	target.State, target.By = inProgress, r.caller.ObjectID
	target.Started = a.Now().UTC().Truncate(time.Second)
	text, _ := json.Marshal(target) // texts, numbers and times can be encoded
	data := signed(a.Credentials.Keys, operationIDs, r.subscriptionKey(), text)
	id := uuid.UUID(data[:macSize]).String()
	query := url.Values{"o": {lowerCase.EncodeToString(text)}}
	a.pointTo(r, r.subscriptionKey()+"/"+id, query, only)
}

// pointTo adds the URLs of an operation, as its caller reaches the provider: of its status and, if
// there is only the operation to answer with, of its result; then it answers with 202.
func (a *API) pointTo(r *request, key string, query url.Values, only bool) {
	_, id, _ := strings.Cut(key, "/")
	query.Set("api-version", api.APIVersion)
	at := func(what string) string {
		u := r.publicURL()
		u.Path = "/subscriptions/" + r.name("subscription") + "/providers/" + namespace +
			"/locations/" + a.location(r) + "/" + what + "/" + id
		u.RawPath, u.Fragment = "", ""
		u.RawQuery = query.Encode()
		return u.String()
	}
	h := r.answer.Header()
	h.Set("Azure-AsyncOperation", at("operationStatuses"))
	h.Set("Retry-After", operationAgain)
	if only {
		h.Set("Location", at("operationResults"))
		r.answer.WriteHeader(http.StatusAccepted)
	}
}

// operationAgain is the pause between requests about an operation, in seconds (RPC: 10 to 600).
const operationAgain = "10"

// location returns the location of a request's cluster; global if it is unknown.
func (a *API) location(r *request) string {
	row, err := a.findCluster(r)
	if err != nil || row.Value.Location == "" {
		return "global"
	}
	return flexnode.Region(row.Value.Location)
}

// operation reads an operation, for callers that have begun it or may read its target.
func (a *API) operation(r *request) (flexnode.Operation, error) {
	unknown := arm.Errorf(404, "OperationNotFound", "The operation '%s' was not found.",
		shorten(r.name("operation")))
	o, there, err := a.findOperation(r)
	switch {
	case err != nil:
	case !there:
		err = unknown
	case !r.caller.Trusted && (o.By == "" || o.By != r.caller.ObjectID):
		kind := api.ResourceType
		if o.Kind == putClusterKind || o.Kind == deleteClusterKind {
			kind = flexnode.ClusterType
		}
		err = a.allowed(r, kind+"/read", o.Target, unknown)
	}
	if err != nil || o.State != inProgress || o.Kind == deleteClusterKind {
		return o, err
	}
	return a.progress(r.Context(), o)
}

// allowed returns refused unless the caller has a role for an action at a scope.
func (a *API) allowed(r *request, action, scope string, refused error) error {
	may, err := a.Authorizer.Allowed(r.Context(), r.caller, action, scope)
	if err == nil && !may {
		err = refused
	}
	return err
}

// findOperation returns the operation with an id: the one in the query, or the row of a deletion.
func (a *API) findOperation(r *request) (flexnode.Operation, bool, error) {
	id := arm.Fold(r.name("operation"))
	query := arm.Fold(r.query.Get("o"))
	if query == "" {
		row, err := a.Store.Operations.Get(r.Context(), r.subscriptionKey()+"/"+id)
		return row.Value, row.Exists(), err
	}
	var o flexnode.Operation
	mac, _ := uuid.Parse(id) // checkNames has checked it
	raw, err := lowerCase.DecodeString(query)
	text, ok := checked(a.Credentials.Keys, operationIDs, r.subscriptionKey(), append(mac[:], raw...))
	there := err == nil && ok && json.Unmarshal(text, &o) == nil
	return o, there && a.Now().Before(o.Started.Add(OperationAge)), nil
}

// OperationAge limits the time for which an operation can be asked about.
const OperationAge = 7 * 24 * time.Hour

func (a *API) progress(ctx context.Context, o flexnode.Operation) (flexnode.Operation, error) {
	state, reason, err := a.stateOf(ctx, o)
	if err != nil || state == api.Creating || state == api.Updating {
		return o, err
	}
	switch state {
	case api.Succeeded:
		o.State = api.Succeeded
	case "":
		o.State, o.Code = api.Canceled, "ResourceNotFound"
		o.Message = "The resource was deleted meanwhile."
	default:
		o.State, o.Code, o.Message = api.Failed, "ProvisioningFailed", reason
	}
	o.Ended = a.Now().UTC()
	return o, nil
}

// stateOf returns the provisioningState of an operation's target, and its reason; "" if it is gone.
func (a *API) stateOf(ctx context.Context, o flexnode.Operation) (string, string, error) {
	key, ok := flexnode.KeyOf(o.Target)
	if !ok {
		return "", "", nil
	}
	if o.Kind == putClusterKind {
		row, err := a.Store.Clusters.Get(ctx, key)
		if err != nil || !row.Exists() || row.Value.UID != o.UID {
			return "", "", err
		}
		shown := flexnode.ShownCluster(row.Value).Properties
		return shown.ProvisioningState, shown.Message, nil
	}
	row, err := a.Store.Nodes.Get(ctx, key)
	if err != nil || !row.Exists() || row.Value.UID != o.UID {
		return "", "", err
	}
	if n := row.Value; n.State == "" && n.Credential == "" && n.Reason != "" {
		return api.Failed, n.Reason, nil // the node is unchanged, and has no credential
	}
	return flexnode.Shown(row.Value, nil, nil, nil).Properties.ProvisioningState, row.Value.Reason, nil
}

func (a *API) getOperationStatus(r *request) (any, error) {
	o, err := a.operation(r)
	if err != nil {
		return nil, err
	}
	shown := operationStatus{
		ID: r.resourceID(), Name: arm.Fold(r.name("operation")), ResourceID: o.Target,
		Status: o.State, StartTime: o.Started, EndTime: o.Ended,
	}
	if o.State == inProgress {
		r.answer.Header().Set("Retry-After", operationAgain)
	}
	if o.Total > 0 {
		shown.PercentComplete = new(100 * o.Done / o.Total)
	}
	if o.Code != "" {
		shown.Error = &arm.Error{Code: o.Code, Message: o.Message}
	}
	return shown, nil
}

// getOperationResult answers like the request that began the operation; 202 while that is in
// progress (RPC, Location).
func (a *API) getOperationResult(r *request) (any, error) {
	o, err := a.operation(r)
	if err != nil {
		return nil, err
	}
	switch {
	case o.State == inProgress:
		link := r.publicURL()
		r.answer.Header().Set("Location", link.String())
		r.answer.Header().Set("Retry-After", operationAgain)
		r.answer.WriteHeader(http.StatusAccepted)
	case o.State != api.Succeeded:
		return nil, &arm.Error{Status: http.StatusConflict, Code: o.Code, Message: o.Message}
	case o.Kind == regenerateKind:
		return a.answerRegenerated(r, o)
	}
	return nil, nil
}

// answerRegenerated answers with the URL that regenerateToken has made, and no other. It is a
// secret: the caller must be allowed to read it now, not only at the request.
func (a *API) answerRegenerated(r *request, o flexnode.Operation) (any, error) {
	if !r.caller.Trusted {
		action := api.ResourceType + "/listConfigUrl/action"
		if err := a.allowed(r, action, o.Target, r.forbidden(o.Target)); err != nil {
			return nil, err
		}
	} else if o.By != r.caller.ObjectID {
		return nil, r.forbidden(o.Target)
	}
	key, _ := flexnode.KeyOf(o.Target)
	node, err := a.Store.Nodes.Get(r.Context(), key)
	if err != nil {
		return nil, err
	}
	if node.Value.UID != o.UID || node.Value.Credential != o.Credential {
		node.Value.Credential = "" // it was replaced
	}
	url, err := a.liveURL(r, node.Value)
	if err == nil && url == nil {
		err = arm.Errorf(409, "NoConfigUrl",
			"The configuration URL is no longer valid: it was used, replaced, or has expired. POST "+
				"regenerateToken to create another.")
	}
	return url, err
}

// lowerCase encodes operations so that they survive a change of case, as by ARM.
var lowerCase = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// awaitCluster waits until the cluster of a request is as wanted, or gone.
func (a *API) awaitCluster(r *request, wanted func(flexnode.Cluster) bool) error {
	_, err := awaitRow(a, r, a.Store.Clusters, r.clusterKey(),
		func(row store.Row[flexnode.Cluster]) bool { return !row.Exists() || wanted(row.Value) })
	return err
}

func (a *API) awaitCredential(r *request, n flexnode.Node) error {
	_, err := awaitRow(a, r, a.Store.Credentials, n.Credential,
		func(row store.Row[store.Credential]) bool { return row.Value.State != store.Pending })
	return err
}

// awaitRow waits until a cluster's reconciler has made a row as wanted, for at most Patience, and
// reports whether it is. It gives up the request's place meanwhile. A timeout is not an error.
func awaitRow[T any](
	a *API, r *request, table store.Table[T], key string, wanted func(store.Row[T]) bool,
) (is bool, err error) {
	wait, cancel := context.WithTimeout(r.Context(), a.Patience)
	defer cancel()
	var row store.Row[T]
	r.place.Rest(func() { row, err = table.Wait(wait, key, wanted) })
	if err != nil && wait.Err() != nil && r.Context().Err() == nil {
		return false, nil
	}
	return err == nil && wanted(row), err
}
