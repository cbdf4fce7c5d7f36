package front

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// reserved are headers that only Resource Manager may send (RPC, common API details).
var reserved = []string{"X-Ms-Client-", "X-Ms-Home-Tenant-Id", "X-Ms-Arm-", "X-Ms-Identity-"}

func strip(h http.Header) {
	for name := range h {
		for _, prefix := range reserved {
			if strings.HasPrefix(name, prefix) && name != "X-Ms-Client-Request-Id" {
				h.Del(name)
			}
		}
	}
	h.Del("Referer")
}

// ServeHTTP implements http.Handler. It runs serve, writes its error, and observes the request.
func (l *listener) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	began := time.Now()
	answer := &response{ResponseWriter: w, status: http.StatusOK}
	r := &request{Request: hr, answer: answer, listener: l, id: uuid.NewString()}
	r.query, r.badQuery = lowerKeys(hr.URL.RawQuery)
	if !l.trusted {
		strip(hr.Header)
	}
	correlate(answer, r)
	if err := l.serveSafely(r); err != nil {
		l.api.fail(answer, r, err)
	}
	l.api.observe(r, answer, time.Since(began)-r.waited)
}

// serveSafely runs serve, and returns a panic as an error.
func (l *listener) serveSafely(r *request) (err error) {
	defer store.Caught(&err)
	return l.serve(r)
}

// serve runs the steps of every request. Unmatched ones are refused in ARM's order: version,
// caller, path.
func (l *listener) serve(r *request) error {
	unmatched := l.match(r)
	if err := r.checkVersion(); err != nil {
		return err
	}
	if r.route == nil || !r.route.open {
		caller, err := l.authenticate.Authenticate(r.Request)
		if err != nil {
			return err
		}
		r.caller = caller
	}
	if unmatched != nil {
		return unmatched
	}
	for _, step := range steps {
		if err := step(l.api, r); err != nil {
			return err
		}
	}
	defer r.place.Leave()
	if l.api.Tracer != nil && !r.isPoll() { // polls would be nearly all spans
		ctx, span := l.api.trace(r)
		defer span.End()
		r.Request = r.WithContext(ctx)
	}
	answer, err := r.route.handle(r)
	if err == nil && !r.answer.wrote {
		r.place.Rest(func() { r.answer.send(answer) }) // the client may be slow to read it
	}
	return err
}

var steps = [...]func(*API, *request) error{
	(*API).checkNames, (*API).checkQuery, (*API).recognize, (*API).throttle, (*API).authorize,
	(*API).throttleAllowed, (*API).checkSubscription, (*API).readBody, (*API).enter,
}

// lowerKeys parses a query; the names of parameters are compared without regard to case.
func lowerKeys(raw string) (parsed url.Values, err error) {
	parsed, err = url.ParseQuery(raw)
	for key, values := range parsed {
		if lower := strings.ToLower(key); lower != key {
			delete(parsed, key)
			parsed[lower] = append(parsed[lower], values...)
		}
	}
	return parsed, err
}

// correlate sets the headers that identify a request in several logs.
func correlate(w http.ResponseWriter, r *request) {
	correlation := r.Header.Get("X-Ms-Correlation-Request-Id")
	if correlation == "" || len(correlation) > 64 {
		correlation = r.id
	}
	h := w.Header()
	h.Set("X-Ms-Request-Id", r.id)
	h.Set("X-Ms-Correlation-Request-Id", correlation)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	client := r.Header.Get("X-Ms-Client-Request-Id")
	wanted := strings.EqualFold(r.Header.Get("X-Ms-Return-Client-Request-Id"), "true")
	if wanted && client != "" && len(client) <= 64 {
		h.Set("x-ms-client-request-id", client)
	}
}

// authorize checks the caller's permission. Resource Manager has checked it; a node needs none.
func (a *API) authorize(r *request) error {
	if r.caller.isMachine() {
		return a.authorizeMachine(r)
	}
	if r.route.permission == "" || r.caller.Trusted || r.own {
		return nil
	}
	refused := a.askRole(r)
	if e, ok := errors.AsType[*arm.Error](refused); !ok || e.Status != 403 || !r.route.own {
		return refused
	}
	return a.ownOr(refused, r, r.caller.TenantID+"/"+r.caller.ObjectID)
}

// ownOr returns refused unless the caller is the node by the store. Anyone can get a token of the
// tenant, or make a key: a stranger that is refused often costs the store nothing.
func (a *API) ownOr(refused error, r *request, stranger string) error {
	limiter := r.listener.strangers.of(stranger, time.Second, 10)
	if limiter.Tokens() < 1 {
		return refused
	}
	if own, err := a.ownStoredNode(r); own || err != nil {
		return err
	}
	limiter.Allow()
	return refused
}

// askRole returns an error unless the caller has a role for the request.
func (a *API) askRole(r *request) error {
	if r.caller.isMachine() {
		return notRegistered() // it has no roles
	}
	allowed, err := a.Authorizer.Allowed(r.Context(), r.caller, r.route.permission, r.scope())
	switch {
	case errors.Is(err, errUnknownSubscription):
		return cmp.Or(r.allowedIn(""), r.forbidden(r.scope()))
	case err != nil:
		return fmt.Errorf("cannot check whether the caller is authorized: %w", err)
	case !allowed:
		return r.forbidden(r.scope())
	}
	return nil
}

func (r *request) forbidden(scope string) error {
	return arm.Errorf(403, "AuthorizationFailed",
		"The client '%s' with object id '%s' does not have authorization to perform action '%s' "+
			"over scope '%s' or the scope is invalid. If access was recently granted, please "+
			"refresh your credentials.",
		r.caller.Name, r.caller.ObjectID, r.route.permission, scope)
}

type response struct {
	http.ResponseWriter
	status int
	wrote  bool
}

func (w *response) send(answer any) {
	status := http.StatusOK
	if x, ok := answer.(resource); ok {
		if x.created {
			status = http.StatusCreated
		}
		w.Header().Set("ETag", x.etag)
		answer = x.shown
	}
	if answer == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	arm.WriteJSON(w, status, answer)
}

func (w *response) WriteHeader(status int) {
	if !w.wrote {
		w.status, w.wrote = status, true
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(b []byte) (int, error) {
	w.wrote = true
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }
