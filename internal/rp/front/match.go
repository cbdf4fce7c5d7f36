package front

import (
	"net/url"
	"slices"
	"strings"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
)

func split(path string) []string { return strings.Split(strings.Trim(path, "/"), "/") }

// match finds the operation of a request. Segments are compared as ARM compares them: without regard to
// the case of ASCII letters.
func (l *listener) match(r *request) error {
	segments := segmentsOf(r.URL)
	if slices.ContainsFunc(segments, isNoName) {
		return arm.Errorf(400, "InvalidResourceId", "The request path '%s' is not valid.",
			shorten(r.URL.Path))
	}
	var allowed []string
	for i := range l.routes {
		if !fits(l.routes[i].segments, segments) {
			continue
		}
		if l.routes[i].method == r.Method {
			r.route, r.names = &l.routes[i], namesIn(l.routes[i].segments, segments)
			return nil
		}
		allowed = append(allowed, l.routes[i].method)
	}
	if allowed != nil {
		list := strings.Join(allowed, ", ")
		return &refusal{header: "Allow", value: list, answer: arm.Errorf(405, "MethodNotAllowed",
			"The method %s is not allowed here. Allowed are %s.", shorten(r.Method), list)}
	}
	return unknownPath(segments, r.query.Get("api-version"))
}

// segmentsOf are the segments of a path, "" for one that is not escaped as it must be. A path that
// is written as it is by default has no escaped slash.
func segmentsOf(u *url.URL) []string {
	if u.RawPath == "" {
		return split(u.Path)
	}
	segments := split(u.EscapedPath())
	for i, s := range segments {
		segments[i], _ = url.PathUnescape(s)
	}
	return segments
}

// isNoName reports whether a segment can be no name.
func isNoName(s string) bool {
	return s == "" || s == "." || s == ".." || strings.ContainsAny(s, "/\\")
}

// fits compares the segments of a path with those of a route.
func fits(pattern, segments []string) bool {
	if len(pattern) != len(segments) {
		return false
	}
	for i, p := range pattern {
		if p[0] != '{' && !arm.EqualFold(p, segments[i]) {
			return false
		}
	}
	return true
}

// names are the variable segments of a path. There are few, so they are looked for one by one.
type names []struct{ name, value string }

// of returns the segment with a name in the route, "" if the route has no such name: a segment is
// never empty.
func (n names) of(name string) string {
	for i := range n {
		if n[i].name == name {
			return n[i].value
		}
	}
	return ""
}

// namesIn are the variable segments of a path.
func namesIn(pattern, segments []string) names {
	found := make(names, 0, 4)
	for i, p := range pattern {
		if p[0] == '{' {
			found = append(found, struct{ name, value string }{p[1 : len(p)-1], segments[i]})
		}
	}
	return found
}

// unknownPath tells what of a path is not known.
func unknownPath(segments []string, version string) error {
	isProviders := func(s string) bool { return arm.EqualFold(s, "providers") }
	at := slices.IndexFunc(segments, isProviders)
	if at < 0 || at+1 >= len(segments) {
		return arm.Errorf(404, "NotFound", "There is nothing at this path.")
	}
	if !arm.EqualFold(segments[at+1], namespace) {
		return arm.Errorf(404, "InvalidResourceNamespace",
			"The resource namespace '%s' is invalid.", shorten(segments[at+1]))
	}
	var types []string
	for i := at + 2; i < len(segments); i += 2 {
		types = append(types, segments[i])
	}
	return arm.Errorf(404, "InvalidResourceType",
		"The resource type '%s' could not be found in the namespace '%s' for api version '%s'. "+
			"The supported api-versions are '%s'.",
		shorten(strings.Join(types, "/")), namespace, shorten(version), api.APIVersion)
}
