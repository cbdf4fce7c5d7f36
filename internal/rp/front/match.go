package front

import (
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

func split(path string) []string { return strings.Split(strings.Trim(path, "/"), "/") }

// match finds the operation of a request. As in ARM, the case of ASCII letters is ignored.
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
			r.route, r.segments = &l.routes[i], segments
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

// segmentsOf returns the segments of a path; "" for one with invalid escapes. A path in its default
// encoding has no escaped slash.
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

// isNoName reports whether a segment cannot be a name.
func isNoName(s string) bool {
	return s == "" || s == "." || s == ".." || strings.ContainsAny(s, "/\\")
}

func fits(pattern, segments []string) bool {
	return slices.EqualFunc(pattern, segments, func(p, segment string) bool {
		return p[0] == '{' || arm.EqualFold(p, segment)
	})
}

// name returns a variable segment of the path as the caller wrote it; "" for an unknown name.
func (r *request) name(of string) string {
	for i, segment := range r.segments {
		if p := r.route.segments[i]; p[0] == '{' && p[1:len(p)-1] == of {
			return segment
		}
	}
	return ""
}

// unknownPath returns an error that names the unknown part of a path.
func unknownPath(segments []string, version string) error {
	isProviders := func(s string) bool { return arm.EqualFold(s, "providers") }
	at := slices.IndexFunc(segments, isProviders)
	if at < 0 || at+1 >= len(segments) {
		return arm.Errorf(404, "NotFound", "This path does not exist.")
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

var nameRules = []struct {
	name          string
	good          func(string) bool
	code, message string
}{
	{"subscription", flexnode.IsGUID, "InvalidSubscriptionId",
		"The provided subscription identifier '%s' is malformed or invalid."},
	{"group", isGroup, "InvalidResourceGroupName", "The resource group name '%s' is invalid."},
	{"cluster", func(s string) bool { return isWord(s, "-_") }, "InvalidResourceName",
		"The cluster name '%s' is invalid: 1 to 63 letters, digits, '-' and '_', a letter or " +
			"digit first and last."},
	{"node", isNode, "InvalidResourceName",
		"The node name '%s' is invalid: in lower case it must be the name of a Kubernetes node " +
			"(DNS-1123: letters, digits, '-' and '.', at most 253)."},
	{"operation", flexnode.IsGUID, "InvalidOperationId",
		"The operation id '%s' is malformed or invalid."},
}

// checkNames checks the variable segments, without regular expressions: every poll runs it.
func (a *API) checkNames(r *request) error {
	for _, rule := range nameRules {
		if value := r.name(rule.name); value != "" && !rule.good(value) {
			return arm.Errorf(400, rule.code, rule.message, shorten(value))
		}
	}
	return nil
}

func isAlphanumeric(c rune) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' }

// isGroup follows ARM's rules for names of resource groups.
func isGroup(s string) bool {
	isOther := func(c rune) bool {
		return !unicode.IsLetter(c) && !unicode.IsNumber(c) && !strings.ContainsRune("_().-", c)
	}
	return s != "" && utf8.RuneCountInString(s) <= 90 && !strings.HasSuffix(s, ".") &&
		!strings.ContainsFunc(s, isOther)
}

// isNode reports whether a name is, in lower case, a DNS-1123 subdomain.
func isNode(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if !isWord(label, "-") {
			return false
		}
	}
	return len(s) <= 253
}

// isWord reports whether a text is 1 to 63 letters and digits, with characters of between inside.
func isWord(s, between string) bool {
	isOther := func(c rune) bool { return !isAlphanumeric(c) && !strings.ContainsRune(between, c) }
	return s != "" && len(s) <= 63 && isAlphanumeric(rune(s[0])) &&
		isAlphanumeric(rune(s[len(s)-1])) && !strings.ContainsFunc(s, isOther)
}
