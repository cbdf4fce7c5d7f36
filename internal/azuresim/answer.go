package azuresim

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// answer records a response to a request that Resource Manager makes itself.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) { a.status = status }

func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }

// isBusy reports whether a later retry may get another response.
func (a *answer) isBusy() bool {
	switch a.status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// problem returns the error in the response, or nil.
func (a *answer) problem() error {
	if a.status < 400 {
		return nil
	}
	var told struct {
		Error *arm.Error `json:"error"`
	}
	if err := json.Unmarshal(a.body.Bytes(), &told); err != nil || told.Error == nil {
		return arm.Errorf(a.status, strings.ReplaceAll(http.StatusText(a.status), " ", ""),
			"The resource provider has answered %d.", a.status)
	}
	told.Error.Status = a.status
	return told.Error
}

// inner returns a request that Resource Manager makes on behalf of a caller.
func inner(ctx context.Context, c call, method, uri string, body []byte) (call, error) {
	at, err := url.Parse(uri)
	if err != nil {
		return c, err
	}
	r := c.Clone(ctx)
	r.Method, r.URL, r.RequestURI, r.Body = method, at, at.RequestURI(), http.NoBody
	r.Header = http.Header{"Accept": {"application/json"}, "Content-Type": {"application/json"}}
	n := call{Request: r, caller: c.caller, body: body}
	if n.id, err = arm.Parse(at.Path); err != nil {
		return c, err
	}
	n.permission()
	return n, nil
}

// send handles a request on behalf of a caller who has been authenticated, without checking its
// token or permission again.
func (s *Sim) send(ctx context.Context, c call, method, uri string, body []byte) *answer {
	a := &answer{header: http.Header{}, status: http.StatusOK}
	a.header.Set("x-ms-correlation-request-id",
		first(c.Header.Get("x-ms-correlation-request-id"), uuid.NewString()))
	n, err := inner(ctx, c, method, uri, body)
	if err != nil {
		arm.Errorf(400, "InvalidResourceId", "The resource id '%s' is not valid.", uri).Write(a)
		return a
	}
	if s.Log != nil {
		s.Log.Info("request", "service", ARM, "method", method, "path", n.URL.Path, "deployment",
			c.id.Name())
	}
	problem := s.exists(n.id)
	if problem == nil {
		problem = s.dispatch(a, n)
	}
	if problem != nil {
		problem.Write(a)
	}
	return a
}
