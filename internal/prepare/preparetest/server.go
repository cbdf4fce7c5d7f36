// Package preparetest has an API server for tests of package prepare.
package preparetest

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

type object = map[string]any

// Server implements what a plan needs of an API server: objects by path, server-side apply with dry
// runs and conflicts, lists by label, and deletion. Tests change its fields between requests.
type Server struct {
	Version    string
	Objects    map[string]map[string]any // by path
	Taken      map[string]string         // the fields owned by others, by path of the object
	Writes     int
	Kubeconfig string // a kubeconfig file for it

	t    *testing.T
	mu   sync.Mutex
	uids int
}

// New starts a server for the duration of a test.
func New(t *testing.T) *Server {
	t.Helper()
	s := &Server{t: t, Version: "v1.36.3", Objects: map[string]object{}, Taken: map[string]string{}}
	at := httptest.NewTLSServer(s)
	t.Cleanup(at.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: at.Certificate().Raw})
	text, err := json.Marshal(object{"apiVersion": "v1", "kind": "Config", "current-context": "admin",
		"clusters": []any{object{"name": "c", "cluster": object{"server": at.URL,
			"certificate-authority-data": ca}}},
		"users":    []any{object{"name": "admin", "user": object{"token": "admin"}}},
		"contexts": []any{object{"name": "admin", "context": object{"cluster": "c", "user": "admin"}}}})
	s.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err == nil {
		err = os.WriteFile(s.Kubeconfig, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch live := s.Objects[r.URL.Path]; {
	case r.URL.Path == "/version":
		s.answer(w, 200, object{"gitVersion": s.Version})
	case r.Method == http.MethodPatch:
		s.apply(w, r, live)
	case r.Method == http.MethodGet && isCollection(r.URL.Path):
		s.list(w, r)
	case live == nil:
		s.answer(w, 404, object{"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404})
	case r.Method == http.MethodGet:
		s.answer(w, 200, live)
	case r.Method == http.MethodDelete:
		s.remove(w, r, live)
	default:
		s.t.Errorf("%s %s", r.Method, r.URL)
	}
}

// isCollection reports whether a path has an odd number of elements after version and namespace.
func isCollection(path string) bool {
	elems := strings.Split(strings.Trim(path, "/"), "/")
	rest := elems[2:]
	if elems[0] == "apis" {
		rest = elems[3:]
	}
	return len(rest)%2 == 1
}

func (s *Server) apply(w http.ResponseWriter, r *http.Request, live object) {
	body, err := io.ReadAll(r.Body)
	var patch object
	if err == nil {
		err = json.Unmarshal(body, &patch)
	}
	if err != nil || r.URL.Query().Get("fieldManager") == "" {
		s.t.Errorf("PATCH %s: %v", r.URL, err)
	}
	if field := s.Taken[r.URL.Path]; field != "" && r.URL.Query().Get("force") != "true" {
		s.answer(w, 409, object{"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409,
			"details": object{"causes": []any{object{"reason": "FieldManagerConflict", "field": field,
				"message": `conflict with "kubectl-edit"`}}}})
		return
	}
	next, _ := merged(live, patch).(object)
	if live == nil {
		s.uids++
		next["metadata"].(object)["uid"] = fmt.Sprint("uid-", s.uids)
	}
	if r.URL.Query().Get("dryRun") == "" {
		s.Objects[r.URL.Path] = next
		s.Writes++
	}
	s.answer(w, 200, next)
}

// merged returns the result of server-side apply, without lists that are merged by key.
func merged(live, patch any) any {
	was, _ := live.(object)
	changes, isMap := patch.(object)
	if !isMap {
		return patch
	}
	next := object{}
	maps.Copy(next, was)
	for k, v := range changes {
		next[k] = merged(next[k], v)
	}
	return next
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	key, value, _ := strings.Cut(r.URL.Query().Get("labelSelector"), "=")
	base, plural := path.Split(r.URL.Path)
	items := []any{}
	for at, o := range s.Objects {
		labels, _ := o["metadata"].(object)["labels"].(object)
		if strings.HasPrefix(at, base) && strings.Contains(at, "/"+plural+"/") &&
			(key == "" || labels[key] == value) {
			items = append(items, o)
		}
	}
	s.answer(w, 200, object{"apiVersion": "v1", "kind": "List", "items": items})
}

func (s *Server) remove(w http.ResponseWriter, r *http.Request, live object) {
	var options struct{ Preconditions struct{ UID string } }
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &options)
	}
	if uid := live["metadata"].(object)["uid"]; err != nil || options.Preconditions.UID != uid {
		s.t.Errorf("DELETE %s of %q, which is %q: %v", r.URL, options.Preconditions.UID, uid, err)
	}
	delete(s.Objects, r.URL.Path)
	s.Writes++
	s.answer(w, 200, object{"kind": "Status", "status": "Success"})
}

func (s *Server) answer(w http.ResponseWriter, code int, body object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		s.t.Error(err)
	}
}

// Put adds an object.
func (s *Server) Put(path, text string) {
	s.t.Helper()
	var o object
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Objects[path] = o
}
