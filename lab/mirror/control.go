package mirror

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Control returns the handler of a running mirror's control API. It has no authentication: serve it
// on a loopback address only.
//
//	GET    /knobs      the Knobs
//	PUT    /knobs      replaces them; unknown fields are errors
//	DELETE /knobs      all at zero
//	GET    /counts     Count by URL path
//	DELETE /counts     all at zero
//	GET    /artifacts  the list of Artifact
//	POST   /artifacts  serves the catalog that load returns
func (m *Mirror) Control(load func(context.Context) (Catalog, error)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /knobs", func(w http.ResponseWriter, _ *http.Request) { answer(w, m.Knobs()) })
	mux.HandleFunc("PUT /knobs", func(w http.ResponseWriter, r *http.Request) {
		var k Knobs
		d := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20))
		d.DisallowUnknownFields()
		err := d.Decode(&k)
		if err == nil {
			err = m.Set(k)
		}
		if err != nil {
			http.Error(w, "cannot set the knobs: "+err.Error(), http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("DELETE /knobs", func(w http.ResponseWriter, _ *http.Request) {
		if err := m.Set(Knobs{}); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /counts", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, m.Counts())
	})
	mux.HandleFunc("DELETE /counts", func(w http.ResponseWriter, _ *http.Request) {
		m.Reset()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /artifacts", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, m.Catalog().Artifacts)
	})
	mux.HandleFunc("POST /artifacts", func(w http.ResponseWriter, r *http.Request) {
		c, err := load(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		m.Replace(c)
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

func answer(w http.ResponseWriter, v any) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		http.Error(w, "internal error: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n'))
}

// Client is a client of Control.
type Client struct {
	// URL is the address of Control, without a path.
	URL string
	// HTTP sends the requests.
	HTTP *http.Client
}

// Set replaces the knobs.
func (c Client) Set(ctx context.Context, k Knobs) error {
	return c.do(ctx, http.MethodPut, "/knobs", k, nil)
}

// Counts returns the counts of requests by URL path.
func (c Client) Counts(ctx context.Context) (map[string]Count, error) {
	var counts map[string]Count
	err := c.do(ctx, http.MethodGet, "/counts", nil, &counts)
	return counts, err
}

// Reset sets all counts to zero.
func (c Client) Reset(ctx context.Context) error {
	return c.do(ctx, http.MethodDelete, "/counts", nil, nil)
}

// Artifacts returns the artifacts that the mirror serves.
func (c Client) Artifacts(ctx context.Context) ([]Artifact, error) {
	var list []Artifact
	err := c.do(ctx, http.MethodGet, "/artifacts", nil, &list)
	return list, err
}

// Reload makes the mirror serve what has been built since it started.
func (c Client) Reload(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/artifacts", nil, nil)
}

func (c Client) do(ctx context.Context, method, path string, in, out any) error {
	text, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("internal error: cannot encode a request to the mirror: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.URL, "/")+path,
		bytes.NewReader(text))
	if err != nil {
		return err
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return fmt.Errorf("cannot reach the mirror's control: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("cannot read the answer of the mirror's control: %w", err)
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("cannot %s %s: %s: %s", method, path, resp.Status, bytes.TrimSpace(body))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(body, out)
}
