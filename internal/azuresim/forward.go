package azuresim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// Provider is a resource provider to which Resource Manager forwards requests (RPC, "Common API
// details"). Resource Manager has authenticated and authorized the caller, names it in headers and
// authenticates itself with a client certificate.
type Provider struct {
	// URLs are the provider's replicas. Requests rotate among them; if one cannot be reached, the next
	// is tried.
	URLs []string
	// Client has Resource Manager's client certificate.
	Client *http.Client
	// Record, if not nil, receives each exchange as a line of JSON: {"request": {method, url, headers,
	// body}, "response": {status, headers, body}}. The lines include configuration URLs.
	Record io.Writer
}

// Limits of Resource Manager.
const (
	forwardTimeout = 60 * time.Second
	forwardLimit   = 8 << 20
	requestLimit   = 4 << 20
	segmentLimit   = 260 // of a path, as http.sys has it
)

// forwards reports whether a request goes to the provider: for its own resources and operations, a
// cluster's flex nodes, or a cluster that does not exist in this Azure.
func (s *Sim) forwards(c call) bool {
	if s.Provider == nil {
		return false
	}
	switch strings.ToLower(c.id.Type()) {
	case "microsoft.containerservice/managedclusters/flexnodeconfig",
		"microsoft.containerservice/locations/operationstatuses",
		"microsoft.containerservice/locations/operationresults":
		return true
	case "microsoft.containerservice/managedclusters":
		if c.Method == http.MethodPost {
			action := strings.ToLower(c.id.Action)
			return action == "summarizeflexnodes" || action == "allowversions"
		}
		return c.id.Name() != "" && !s.hasCluster(c.scope)
	}
	return false
}

// hasCluster reports whether a cluster exists in this Azure.
func (s *Sim) hasCluster(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.world.Clusters,
		func(k Cluster) bool { return arm.Key(k.ID) == arm.Key(id) })
}

// forward sends a request to the provider and its response to the caller.
func (s *Sim) forward(w http.ResponseWriter, c call) *arm.Error {
	ctx, cancel := context.WithTimeout(c.Context(), forwardTimeout)
	defer cancel()
	response, err := s.ask(ctx, c.Method, c.URL.RequestURI(), c.body,
		s.forwardHeaders(c, w.Header().Get("x-ms-correlation-request-id")))
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return arm.Errorf(504, "GatewayTimeout",
			"The gateway did not receive a response from 'Microsoft.ContainerService' within "+
				"the specified time period.")
	case err != nil:
		return arm.Errorf(502, "BadGateway",
			"The resource provider 'Microsoft.ContainerService' cannot be reached.")
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, forwardLimit+1))
	if err != nil {
		return arm.Errorf(502, "BadGateway",
			"The answer of the resource provider 'Microsoft.ContainerService' has no end.")
	}
	if len(body) > forwardLimit {
		return arm.Errorf(500, "ResponseTooLarge",
			"The response of the resource provider is too large.")
	}
	s.record(c, response, body)
	for name, values := range response.Header {
		if name != "Content-Length" && name != "Date" && name != "X-Ms-Request-Id" {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(response.StatusCode)
	_, _ = w.Write(body)
	return nil
}

// record writes an exchange to the provider's record, if it has one.
func (s *Sim) record(c call, response *http.Response, body []byte) {
	if s.Provider.Record == nil {
		return
	}
	flat := func(h http.Header) map[string]string {
		flat := map[string]string{}
		for name, values := range h {
			if name != "Authorization" {
				flat[strings.ToLower(name)] = values[0]
			}
		}
		return flat
	}
	raw := func(text []byte) json.RawMessage {
		if !json.Valid(text) {
			return json.RawMessage("null")
		}
		return text
	}
	line, err := json.Marshal(map[string]any{
		"request": map[string]any{"method": c.Method, "url": c.URL.RequestURI(),
			"headers": flat(c.Header), "body": raw(c.body)},
		"response": map[string]any{"status": response.StatusCode, "headers": flat(response.Header),
			"body": raw(body)},
	})
	if err != nil {
		panic("internal error: " + err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// a line that cannot be written is missing in the record
	_, _ = s.Provider.Record.Write(append(line, '\n'))
}

// forwardHeaders returns the caller's headers, with the X-Ms-Client-* headers replaced by those
// that only Resource Manager sets.
func (s *Sim) forwardHeaders(c call, correlation string) http.Header {
	h := http.Header{}
	for name, values := range c.Header {
		if !strings.HasPrefix(name, "X-Ms-Client-") || name == "X-Ms-Client-Request-Id" {
			h[name] = values
		}
	}
	for _, name := range []string{"Authorization", "Connection", "Accept-Encoding",
		"Content-Length"} {
		h.Del(name)
	}
	public := url.URL{Scheme: "https", Host: c.Host, Path: c.URL.Path, RawQuery: c.URL.RawQuery}
	h.Set("Referer", public.String())
	h.Set("x-ms-correlation-request-id", correlation)
	h.Set("x-ms-client-object-id", c.caller.OID)
	h.Set("x-ms-client-principal-id", c.caller.OID)
	h.Set("x-ms-client-app-id", c.caller.AppID)
	h.Set("x-ms-client-tenant-id", c.caller.TID)
	h.Set("x-ms-client-principal-name", c.caller.UPN)
	h.Set("x-ms-client-issuer", c.caller.Issuer)
	h.Set("x-ms-client-audience", c.caller.Aud)
	if host, _, err := net.SplitHostPort(c.RemoteAddr); err == nil {
		h.Set("x-ms-client-ip-address", host)
	}
	if c.Method == http.MethodPut {
		by, kind := c.caller.AppID, "Application"
		if c.caller.UPN != "" {
			by, kind = c.caller.UPN, "User"
		}
		now := s.now().UTC().Format(time.RFC3339)
		// strings always encode
		data, _ := json.Marshal(map[string]string{"lastModifiedBy": by, "lastModifiedByType": kind,
			"lastModifiedAt": now})
		h.Set("x-ms-arm-resource-system-data", string(data))
	}
	return h
}

// ask sends a request to the replicas in turn until one responds.
func (s *Sim) ask(ctx context.Context, method, uri string, body []byte,
	h http.Header) (*http.Response, error) {
	var errs []error
	s.mu.Lock()
	s.turn++
	turn := s.turn
	s.mu.Unlock()
	for i := range s.Provider.URLs {
		base := s.Provider.URLs[(turn+i)%len(s.Provider.URLs)]
		r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(base, "/")+uri,
			bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		r.Header = h.Clone()
		response, err := s.Provider.Client.Do(r)
		if err == nil {
			return response, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// registerAt notifies the provider that a subscription is registered (RPC, subscription lifecycle).
func (s *Sim) registerAt(ctx context.Context, subscription string) *arm.Error {
	if s.Provider == nil {
		return nil
	}
	// strings always encode
	body, _ := json.Marshal(map[string]any{"state": "Registered",
		"registrationDate": s.now().UTC().Format(time.RFC1123),
		"properties":       map[string]string{"tenantId": s.tenant()}})
	response, err := s.ask(ctx, http.MethodPut,
		fmt.Sprintf("/subscriptions/%s?api-version=2.0", subscription), body,
		http.Header{"Content-Type": {"application/json"}})
	if err != nil {
		return arm.Errorf(502, "BadGateway",
			"The resource provider 'Microsoft.ContainerService' cannot be reached.")
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return arm.Errorf(502, "BadGateway",
			"The resource provider 'Microsoft.ContainerService' did not take the subscription: %s.",
			response.Status)
	}
	return nil
}
