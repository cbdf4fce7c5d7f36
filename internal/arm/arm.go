// Package arm is Azure Resource Manager as a protocol: resource ids, the error body, the headers.
// It knows no resource type and asks no network; the resource provider and azuresim speak with
// it.
package arm

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ID is a resource id, taken apart. Names keep the casing they were written with; compare with
// Equal or Key.
type ID struct {
	Subscription, ResourceGroup string
	// Namespace is that of the innermost provider, such as Microsoft.Authorization; "" for a
	// subscription or resource group.
	Namespace string
	// Types and Names are the innermost provider's, outermost first; equally long, or Names one
	// shorter for a collection.
	Types, Names []string
	// Parent is the scope of an extension resource, such as the cluster of a role assignment; ""
	// for others.
	Parent string
	Action string // the last segment of a POST; Parse never sets it
	text   string
	scope  string // see Scope
}

// Parse takes a path of ARM apart:
// /subscriptions/{s}[/resourceGroups/{g}][/providers/{namespace}/{type}/{name}...]..., any casing.
// What a segment is, its place tells: also a resource may be called providers.
func Parse(path string) (ID, error) {
	path = "/" + strings.Trim(path, "/")
	id := ID{text: path}
	bad := fmt.Errorf("cannot parse %q as a resource id", path)
	segments := strings.Split(path[1:], "/")
	at := id.base(segments)
	if at < 0 {
		return ID{}, bad
	}
	for ; at < len(segments) && !isProviders(segments, at); at++ { // what is below no provider
	}
	id.scope = joined(segments[:at])
	if slices.Contains(segments[at:], "") {
		return ID{}, bad
	}
	for at < len(segments) {
		if id.Namespace != "" {
			id.Parent = joined(segments[:at])
			id.scope = id.Parent
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

// base takes subscription and resource group, and returns how many segments they are; -1 if the
// path begins with neither these nor a provider.
func (i *ID) base(segments []string) int {
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
	case n == 3: // its resource groups
		i.Subscription = segments[1]
		return 3
	}
	i.Subscription, i.ResourceGroup = segments[1], segments[3]
	return 4
}

// isProviders reports whether a provider begins where a segment may be one.
func isProviders(segments []string, at int) bool {
	return at+1 < len(segments) && EqualFold(segments[at], "providers")
}

// joined is the path of segments; "" of none.
func joined(segments []string) string {
	if len(segments) == 0 {
		return ""
	}
	return "/" + strings.Join(segments, "/")
}

// Scope returns the parent of the innermost provider: a resource, a resource group, a subscription;
// "" is all.
func (i ID) Scope() string { return i.scope }

// String is the id as it was written.
func (i ID) String() string { return i.text }

// Key is the id in the form that ids are compared in: ARM ignores case.
func (i ID) Key() string { return Key(i.text) }

// Key brings an id into the form that ids are compared in.
func Key(id string) string { return "/" + strings.Trim(Fold(id), "/") }

// Type is the full resource type, such as Microsoft.HybridCompute/machines.
func (i ID) Type() string { return strings.Join(append([]string{i.Namespace}, i.Types...), "/") }

// Name is the innermost name.
func (i ID) Name() string {
	if len(i.Names) == 0 {
		return ""
	}
	return i.Names[len(i.Names)-1]
}

// Error is ARM's error: what goes into the body's "error" member, with the status it is sent with.
type Error struct {
	Status         int     `json:"-"`
	Code           string  `json:"code"`
	Message        string  `json:"message"`
	Target         string  `json:"target,omitempty"`
	Details        []Error `json:"details,omitempty"`
	AdditionalInfo []Info  `json:"additionalInfo,omitempty"` // for programs
}

// Info is something about an error that programs read, with a type that says what.
type Info struct {
	Type string `json:"type"`
	Info any    `json:"info"`
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Errorf makes an error with a status and a code.
func Errorf(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// Write sends the error as ARM does: envelope, and the code also in a header, which SDKs prefer.
func (e *Error) Write(w http.ResponseWriter) {
	w.Header().Set("x-ms-error-code", e.Code)
	WriteJSON(w, e.Status, map[string]*Error{"error": e})
}

// WriteJSON sends a body.
func WriteJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client has gone: no one is left to answer
}

// Fold returns a text with its ASCII letters in lower case. ARM ignores the case of these only:
// Unicode's rules would have U+017F be an s, and U+212A a k, in one place and not in another.
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

// EqualFold reports whether two texts differ at most in the case of their ASCII letters.
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

// RetryLater is the least time after which a caller is to try again, unless a better one is known.
const RetryLater = 10 * time.Second

// SetRetryAfter tells a caller to try again after a time. Up to half of it more, and at least ten
// seconds, is drawn for each answer: callers that are refused together do not come back together.
func SetRetryAfter(h http.Header, least time.Duration) {
	seconds := max(1, int((least+time.Second-1)/time.Second))
	h.Set("Retry-After", strconv.Itoa(seconds+rand.IntN(max(seconds/2, 10)+1)))
}

// Within reports whether an id is a scope or lies below it; / is all.
func Within(id, scope string) bool {
	id, scope = Key(id), Key(scope)
	return id == scope || scope == "/" || strings.HasPrefix(id, scope+"/")
}

// Allows reports whether one of a role's patterns is for an action: case is ignored, and * stands
// for anything.
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
