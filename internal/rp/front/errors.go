package front

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// refusal is an error answer with a header or a time to retry.
type refusal struct {
	answer *arm.Error
	// after is the time to wait before a retry; 0 if that is not known.
	after time.Duration
	// header is a header of the answer, with its value; "" for none.
	header, value string
}

func (r *refusal) Error() string { return r.answer.Error() }

func (r *refusal) Unwrap() error { return r.answer }

// fail writes an error in ARM's form. Details that are not for the caller go to the log.
func (a *API) fail(w *response, r *request, err error) {
	e := a.told(r, err) // it is also logged for an answer that has begun
	if w.wrote {
		return
	}
	after := arm.RetryLater
	if x, ok := errors.AsType[*refusal](err); ok {
		after = cmp.Or(x.after, after)
		if x.header != "" {
			w.Header().Set(x.header, x.value)
		}
	}
	if e.Status == 503 || e.Status == 429 {
		arm.SetRetryAfter(w.Header(), after)
	}
	hurry(w, r)
	e.Write(w)
}

func (a *API) told(r *request, err error) *arm.Error {
	if e, ok := errors.AsType[*arm.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[interface {
		error
		ARM() *arm.Error
	}](err); ok {
		return e.ARM()
	}
	switch {
	case errors.Is(err, fair.ErrBusy):
		return a.told(r, throttle(arm.RetryLater))
	case errors.Is(err, store.ErrConflict):
		return arm.Errorf(409, "Conflict", "The resource is changed by other requests too often. Try "+
			"again.")
	case errors.Is(err, store.ErrTooLarge):
		return arm.Errorf(413, "RequestEntityTooLarge", "The resource is larger than the provider "+
			"can store.")
	case errors.Is(err, context.Canceled) && r.Context().Err() != nil:
		return arm.Errorf(499, "ClientClosedRequest", "The caller has gone.")
	}
	a.Log.Error("cannot answer a request", "request", r.id, "method", r.Method,
		"path", r.URL.Path, slog.Any("error", err))
	const again = "Try again; if that does not help, tell its operator the request id %s."
	switch {
	case errors.Is(err, store.ErrNewer):
		return arm.Errorf(503, "ProviderIsOutdated", "A newer release of the provider has taken over "+
			"its store, and this one no longer writes. "+again, r.id)
	case errors.Is(err, store.ErrFull):
		return arm.Errorf(503, "StoreFull", "The provider's store is full: nothing can be changed, "+
			"reads and polls go on. Tell its operator the request id %s.", r.id)
	}
	return arm.Errorf(503, "ServiceUnavailable", "The service cannot answer now. "+again, r.id)
}

func noParent(r *request) error {
	return arm.Errorf(404, "ParentResourceNotFound", "Can not perform requested operation on nested "+
		"resource. Parent resource '%s' not found.", r.name("cluster"))
}

func noCluster(r *request) error {
	return arm.Errorf(404, "ResourceNotFound",
		"The Resource '%s/%s' under resource group '%s' was not found.",
		flexnode.ClusterType, r.name("cluster"), r.name("group"))
}

func (a *API) registered(v *store.View, r *request) (row store.Row[flexnode.Cluster], err error) {
	if row = a.Store.Clusters.Row(v, r.clusterKey()); !row.Exists() {
		err = noCluster(r)
	}
	return row, err
}

// leaving returns the error for a change of anything in a cluster that is being deleted.
func leaving(r *request) error {
	return arm.Errorf(409, "ClusterIsBeingDeleted",
		"The registration of the cluster '%s' is being deleted. Wait until it is deleted, and "+
			"register the cluster again.", r.name("cluster"))
}

func invalid(format string, args ...any) error {
	return arm.Errorf(400, "InvalidParameter", format, args...)
}
