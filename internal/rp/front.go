package rp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// maxBody bounds a request body: ARM's own limit is 4 MB, ours need a few kilobytes.
const maxBody = 256 << 10

// Front is the API on one listener: how callers prove who they are is a matter of the listener.
type Front struct {
	server       *Server
	routes       []route
	authenticate Authenticator
	// trusted says that Resource Manager is in front: it has authorized, and its headers hold.
	trusted bool
}

// Authenticator tells who a request comes from; an *arm.Error with status 401 otherwise.
type Authenticator interface {
	Authenticate(*http.Request) (Caller, error)
}

// Direct returns the API for callers who come themselves, with tokens.
func (s *Server) Direct(a Authenticator) *Front {
	return &Front{server: s, routes: s.routes(), authenticate: a}
}

// BehindARM returns the API for Resource Manager, which is told by its client certificate.
func (s *Server) BehindARM(a Authenticator) *Front {
	return &Front{server: s, routes: s.routes(), authenticate: a, trusted: true}
}

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

// ServeHTTP implements http.Handler: the steps of serve, and around them what must happen whatever comes of it.
func (f *Front) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	began := time.Now()
	r := &request{Request: hr, front: f, id: uuid.NewString(), query: lowerKeys(hr.URL.RawQuery)}
	if !f.trusted {
		strip(hr.Header)
	}
	seen := &response{ResponseWriter: w, status: http.StatusOK}
	f.correlate(seen, r)
	func() {
		defer func() {
			if p := recover(); p != nil {
				if p == http.ErrAbortHandler {
					panic(p)
				}
				f.server.Log.Error("internal error: panic", "request", r.id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				f.fail(seen, r, fmt.Errorf("internal error: %v", p))
			}
		}()
		if err := f.serve(seen, r); err != nil {
			f.fail(seen, r, err)
		}
	}()
	f.server.observe(r, seen, time.Since(began))
}

// serve is the way of every request. What matches nothing is still told so in ARM's order: version, caller, path.
func (f *Front) serve(w http.ResponseWriter, r *request) error {
	unmatched := f.match(r)
	if err := r.checkVersion(); err != nil {
		return err
	}
	if r.route == nil || !r.route.open {
		caller, err := f.authenticate.Authenticate(r.Request)
		if err != nil {
			return err
		}
		r.caller = caller
	}
	if unmatched != nil {
		return unmatched
	}
	for _, step := range []func(*request) error{(*request).checkNames, f.authorize, f.server.checkSubscription, readBody(w)} {
		if err := step(r); err != nil {
			return err
		}
	}
	ctx, span := f.server.trace(r)
	defer span.End()
	r.Request = r.WithContext(ctx)
	return r.route.handle(w, r)
}

// lowerKeys parses a query; the names of parameters are compared without regard to case.
func lowerKeys(raw string) url.Values {
	parsed, _ := url.ParseQuery(raw) // what does not parse is not there
	lower := make(url.Values, len(parsed))
	for key, values := range parsed {
		key = strings.ToLower(key)
		lower[key] = append(lower[key], values...)
	}
	return lower
}

// correlate sets the headers by which one request is found in several logs.
func (f *Front) correlate(w http.ResponseWriter, r *request) {
	correlation := r.Header.Get("X-Ms-Correlation-Request-Id")
	if correlation == "" || len(correlation) > 64 {
		correlation = r.id
	}
	h := w.Header()
	h["X-Ms-Request-Id"], h["X-Ms-Correlation-Request-Id"] = []string{r.id}, []string{correlation}
	h["X-Content-Type-Options"], h["Cache-Control"] = []string{"nosniff"}, []string{"no-store"}
	client := r.Header.Get("X-Ms-Client-Request-Id")
	if strings.EqualFold(r.Header.Get("X-Ms-Return-Client-Request-Id"), "true") && client != "" && len(client) <= 64 {
		h.Set("x-ms-client-request-id", client)
	}
}

// authorize asks whether the caller may do this, unless Resource Manager has, or it is a node and this is its own.
func (f *Front) authorize(r *request) error {
	if r.route.permission == "" || r.caller.Trusted || r.route.own && f.server.ownNode(r) {
		return nil
	}
	ok, err := f.server.Authorizer.Allowed(r.Context(), r.caller, r.route.permission, r.scope())
	if err != nil {
		return fmt.Errorf("cannot tell whether the caller is authorized: %w", err)
	}
	if ok {
		return nil
	}
	return arm.Errorf(403, "AuthorizationFailed", "The client '%s' with object id '%s' does not have authorization to perform action '%s' over scope '%s' or the scope is invalid. If access was recently granted, please refresh your credentials.",
		r.caller.Name, r.caller.ObjectID, r.route.permission, r.scope())
}

// readBody reads the body of methods that have one.
func readBody(w http.ResponseWriter) func(*request) error {
	return func(r *request) error {
		if r.Method != http.MethodPut && r.Method != http.MethodPost {
			return nil
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return arm.Errorf(413, "RequestContentTooLarge", "The request content is larger than %d bytes.", maxBody)
		}
		if err != nil {
			return arm.Errorf(400, "InvalidRequestContent", "The request content could not be read.")
		}
		if len(body) > 0 {
			kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
			if err != nil || kind != "application/json" {
				return arm.Errorf(415, "UnsupportedMediaType", "The content media type '%s' is not supported. Only 'application/json' is supported.", shorten(r.Header.Get("Content-Type")))
			}
		}
		r.body = body
		return nil
	}
}

// retryAfter is how many seconds a caller shall wait: below what Azure's SDKs give up at, and no round number.
const retryAfter = 17

// fail writes an error in ARM's form. What is not for the caller goes to the log, and the caller gets the id to ask about.
func (f *Front) fail(w *response, r *request, err error) {
	if w.wrote {
		return
	}
	if m, ok := errors.AsType[methodNotAllowed](err); ok {
		w.Header().Set("Allow", strings.Join(m.allowed, ", "))
		err = arm.Errorf(405, "MethodNotAllowed", "The method %s is not allowed here. Allowed are %s.", shorten(r.Method), strings.Join(m.allowed, ", "))
	}
	if c, ok := errors.AsType[*challenged](err); ok {
		w.Header().Set("WWW-Authenticate", c.header)
	}
	e, ok := errors.AsType[*arm.Error](err)
	if !ok {
		f.server.Log.Error("cannot answer a request", "request", r.id, "method", r.Method, "path", r.URL.Path, slog.Any("error", err))
		e = arm.Errorf(503, "ServiceUnavailable", "The service cannot answer now. Try again; if it stays so, tell its operator the request id %s.", r.id)
		if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
			e.Status = 499 // the caller has gone
		}
	}
	if e.Status == 503 || e.Status == 429 {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	e.Write(w)
}

// response remembers what was answered.
type response struct {
	http.ResponseWriter
	status int
	wrote  bool
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

func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }
