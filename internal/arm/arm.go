// Package arm is Azure Resource Manager as a protocol: resource ids, the error body, the headers.
// It knows no resource type and asks no network; the agent, the resource provider and azuresim
// speak with it.
package arm

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// ID is a resource id, taken apart. Names keep the casing they were written with; compare with
// Equal or Key.
type ID struct {
	Subscription  string
	ResourceGroup string
	// Namespace is that of the innermost provider, such as Microsoft.Authorization; "" for a
	// subscription or resource group.
	Namespace string
	// Types and Names are the innermost provider's, outermost first; equally long, or Names one
	// shorter for a collection.
	Types, Names []string
	// Parent is the scope of an extension resource, such as the cluster of a role assignment; ""
	// for others.
	Parent string
	// Action is the last segment of a POST; Parse never sets it.
	Action string
	text   string
}

// Parse takes a path of ARM apart:
// /subscriptions/{s}[/resourceGroups/{g}][/providers/{namespace}/{type}/{name}...]..., any casing.
func Parse(path string) (ID, error) {
	path = "/" + strings.Trim(path, "/")
	id := ID{text: path}
	bad := fmt.Errorf("cannot parse %q as a resource id", path)
	last := LastIndex(path, "/providers/")
	scope := path
	if last >= 0 {
		scope = path[:last]
		segments := strings.Split(path[last+len("/providers/"):], "/")
		id.Namespace = segments[0]
		for i, segment := range segments[1:] {
			if segment == "" {
				return ID{}, bad
			}
			if i%2 == 0 {
				id.Types = append(id.Types, segment)
			} else {
				id.Names = append(id.Names, segment)
			}
		}
		if strings.Contains(strings.ToLower(scope), "/providers/") {
			id.Parent = scope
		}
	}
	segments := strings.Split(strings.Trim(scope, "/"), "/")
	switch {
	case scope == "" || scope == "/":
	case id.Parent != "" && segments[0] == "providers": // such as a management group
	case len(segments) >= 4 && strings.EqualFold(segments[0], "subscriptions") &&
		strings.EqualFold(segments[2], "resourceGroups"):
		id.Subscription, id.ResourceGroup = segments[1], segments[3]
	case len(segments) >= 2 && len(segments) <= 3 &&
		strings.EqualFold(segments[0], "subscriptions"): // and its resourceGroups
		if len(segments) == 3 && !strings.EqualFold(segments[2], "resourceGroups") {
			return ID{}, bad
		}
		id.Subscription = segments[1]
	case len(segments) == 1 &&
		(strings.EqualFold(scope, "/subscriptions") || strings.EqualFold(scope, "/tenants")):
	default:
		return ID{}, bad
	}
	return id, nil
}

// LastIndex is strings.LastIndex, of a part in any casing. An index in a text in lower case is none
// in the text: some letters have another length there.
func LastIndex(text, part string) int {
	for at := len(text) - len(part); at >= 0; at-- {
		if strings.EqualFold(text[at:at+len(part)], part) {
			return at
		}
	}
	return -1
}

// String is the id as it was written.
func (i ID) String() string { return i.text }

// Key is the id in the form that ids are compared in: ARM ignores case.
func (i ID) Key() string { return Key(i.text) }

// Key brings an id into the form that ids are compared in.
func Key(id string) string { return "/" + strings.Trim(strings.ToLower(id), "/") }

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
	Status  int     `json:"-"`
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Target  string  `json:"target,omitempty"`
	Details []Error `json:"details,omitempty"`
	// AdditionalInfo is for programs.
	AdditionalInfo []Info `json:"additionalInfo,omitempty"`
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

// Write sends the error as ARM does: envelope, and the code once more in a header, which SDKs
// prefer.
func (e *Error) Write(w http.ResponseWriter) {
	w.Header().Set("x-ms-error-code", e.Code)
	WriteJSON(w, e.Status, map[string]*Error{"error": e})
}

// WriteJSON sends a body.
func WriteJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client has gone: nobody is left to be told
}
