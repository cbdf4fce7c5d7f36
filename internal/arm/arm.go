// Package arm is Azure Resource Manager as a protocol: resource ids, the error body, headers,
// patterns of actions. It makes no requests and holds no resource types; the resource provider and
// azuresim use it.
package arm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ID is a parsed resource id. Names keep their casing; compare ids by Key.
type ID struct {
	Subscription, ResourceGroup string
	// Namespace is the innermost provider's, such as Microsoft.Authorization; "" without one.
	Namespace string
	// Types and Names are that provider's, outermost first. A collection has one name less.
	Types, Names []string
	// Parent is the scope of an extension resource, such as a role assignment's cluster, or "".
	Parent string
	Action string // the last segment of a POST; Parse never sets it
	text   string
	base   string // the subscription or resource group
}

// Parse parses an ARM path:
//
// /subscriptions/{s}[/resourceGroups/{g}][/providers/{namespace}/{type}/{name}...]..., in any
// casing. A segment's position decides its meaning, so a resource may be named "providers".
func Parse(path string) (ID, error) {
	path = "/" + strings.Trim(path, "/")
	id := ID{text: path}
	bad := fmt.Errorf("cannot parse %q as a resource id", path)
	segments := strings.Split(path[1:], "/")
	at := id.root(segments)
	if at < 0 {
		return ID{}, bad
	}
	for ; at < len(segments) && !isProviders(segments, at); at++ { // a path without a provider
	}
	id.base = joined(segments[:at])
	if slices.Contains(segments[at:], "") {
		return ID{}, bad
	}
	for at < len(segments) {
		if id.Namespace != "" {
			id.Parent = joined(segments[:at])
		}
		id.Namespace, id.Types, id.Names = segments[at+1], nil, nil
		for at += 2; at < len(segments) && !isProviders(segments, at); at += 2 {
			id.Types = append(id.Types, segments[at])
			if at+1 < len(segments) {
				id.Names = append(id.Names, segments[at+1])
			}
		}
	}
	return id, nil
}

// root sets the subscription and resource group and returns the number of segments that they take,
// or -1 if the path begins with neither these nor a provider.
func (i *ID) root(segments []string) int {
	is := func(at int, name string) bool { return EqualFold(segments[at], name) }
	switch n := len(segments); {
	case segments[0] == "" && n == 1, isProviders(segments, 0):
		return 0
	case n == 1 && (is(0, "subscriptions") || is(0, "tenants")):
		return 1
	case n == 1 || !is(0, "subscriptions") ||
		n > 2 && !is(2, "resourceGroups") && !isProviders(segments, 2):
		return -1
	case n == 2 || !is(2, "resourceGroups"):
		i.Subscription = segments[1]
		return 2
	case n == 3: // its list of resource groups
		i.Subscription = segments[1]
		return 3
	}
	i.Subscription, i.ResourceGroup = segments[1], segments[3]
	return 4
}

// isProviders reports whether a provider begins at a segment.
func isProviders(segments []string, at int) bool {
	return at+1 < len(segments) && EqualFold(segments[at], "providers")
}

// joined returns the path of the segments, or "" for none.
func joined(segments []string) string {
	if len(segments) == 0 {
		return ""
	}
	return "/" + strings.Join(segments, "/")
}

// Scope returns the parent of the innermost provider: a resource, a resource group or a
// subscription; "" is the tenant.
func (i ID) Scope() string { return cmp.Or(i.Parent, i.base) }

// String returns the id as it was written.
func (i ID) String() string { return i.text }

// Key returns the id in the form for comparison: ARM ignores case.
func (i ID) Key() string { return Key(i.text) }

// Key returns an id in the form for comparison: in lower case, with one leading slash.
func Key(id string) string { return "/" + strings.Trim(Fold(id), "/") }

// Type returns the full resource type, such as Microsoft.HybridCompute/machines.
func (i ID) Type() string { return strings.Join(append([]string{i.Namespace}, i.Types...), "/") }

// Name returns the innermost name, or "" for a collection.
func (i ID) Name() string {
	if len(i.Names) == 0 {
		return ""
	}
	return i.Names[len(i.Names)-1]
}

// Error is an ARM error: the HTTP status and the body's "error" member.
type Error struct {
	Status         int     `json:"-"`
	Code           string  `json:"code"`
	Message        string  `json:"message"`
	Target         string  `json:"target,omitempty"`
	Details        []Error `json:"details,omitempty"`
	AdditionalInfo []Info  `json:"additionalInfo,omitempty"` // for programs
}

// Info is a part of an error for programs; Type says how to read it.
type Info struct {
	Type string `json:"type"`
	Info any    `json:"info"`
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Errorf returns an error with a status and a code.
func Errorf(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// Write sends the error as ARM does: in an envelope, and its code in the header that SDKs prefer.
func (e *Error) Write(w http.ResponseWriter) {
	w.Header().Set("x-ms-error-code", e.Code)
	WriteJSON(w, e.Status, map[string]*Error{"error": e})
}

// WriteJSON writes a status and a JSON body.
func WriteJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // fails only if the client has gone
}

// Fold returns s with its ASCII letters in lower case. ARM ignores the case of these only;
// Unicode's rules differ between programs on whether U+017F is an s and U+212A a k.
func Fold(s string) string {
	for i := range len(s) {
		if lower(s[i]) == s[i] {
			continue
		}
		b := []byte(s)
		for ; i < len(b); i++ {
			b[i] = lower(b[i])
		}
		return string(b)
	}
	return s
}

// EqualFold reports whether two strings are equal when the case of ASCII letters is ignored.
func EqualFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c |= 0x20
	}
	return c
}

// RetryLater is the minimum Retry-After where no better time is known.
const RetryLater = 10 * time.Second

// SetRetryAfter sets Retry-After to at least the given time, plus a random part of up to half of it
// (at least ten seconds), so that callers refused together do not return together.
func SetRetryAfter(h http.Header, least time.Duration) {
	seconds := max(1, int((least+time.Second-1)/time.Second))
	h.Set("Retry-After", strconv.Itoa(seconds+rand.IntN(max(seconds/2, 10)+1)))
}

// Within reports whether an id is the scope or lies below it. "/" contains every id.
func Within(id, scope string) bool {
	id, scope = Key(id), Key(scope)
	return id == scope || scope == "/" || strings.HasPrefix(id, scope+"/")
}

// Allows reports whether one of a role's patterns matches an action. Case is ignored; * matches any
// text.
func Allows(patterns []string, action string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, action) })
}

func matches(pattern, action string) bool {
	parts := strings.Split(Fold(pattern), "*")
	rest, found := strings.CutPrefix(Fold(action), parts[0])
	if len(parts) == 1 {
		return found && rest == ""
	}
	last := len(parts) - 1
	for _, part := range parts[1:last] {
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return found && strings.HasSuffix(rest, parts[last])
}
