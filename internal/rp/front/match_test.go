package front

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// exampleOf is a path of a route.
func exampleOf(pattern string) string {
	return strings.NewReplacer("{subscription}", subscription, "{group}", "g", "{cluster}", "c",
		"{node}", "n", "{location}", "x", "{operation}", "o").Replace(pattern)
}

// U+017F is an s and U+212A a k by Unicode's rules, and neither by ARM's: there is no route with them.
func TestRoutesAreASCII(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := strings.NewReplacer("s", "\u017f", "S", "\u017f", "k", "\u212a", "K", "\u212a")
	for _, r := range w.api.routes() {
		for i, s := range r.segments {
			if s[0] == '{' || other.Replace(s) == s {
				continue
			}
			segments := append([]string{}, r.segments...)
			segments[i] = url.PathEscape(other.Replace(s))
			path := exampleOf("/" + strings.Join(segments, "/"))
			for name, front := range map[string]http.Handler{"direct": w.front, "arm": w.manager} {
				if got := w.send(front, r.method, path+versionQuery, ""); got.StatusCode != 404 {
					t.Errorf("%s %s %s: %d", name, r.method, path, got.StatusCode)
				}
			}
		}
	}
}

// A denial for a group holds however its letters are written, a grant only as Azure compares.
func TestDenialsFoldMore(t *testing.T) {
	t.Parallel()
	at := func(group string) string { return "/subscriptions/s/resourceGroups/" + group + "/x/y" }
	deny := permission{scope: "/subscriptions/s/resourceGroups/caf\u00e9s"}
	for _, group := range []string{"caf\u00e9s", "CAF\u00c9S", "caf\u00e9\u017f"} {
		if !deny.at(at(group), true) {
			t.Errorf("%s is not denied", group)
		}
	}
	if !deny.at(at("CAF\u00e9S"), false) || deny.at(at("caf\u00e9\u017f"), false) {
		t.Error("a grant is compared in another way")
	}
}

// FuzzScope holds that what is routed parses to a scope of its own names.
func FuzzScope(f *testing.F) {
	w := newWorld(f)
	for _, r := range w.api.routes() {
		f.Add(r.method, exampleOf(r.pattern))
	}
	f.Add("GET", strings.Replace(cluster, "resourceGroups", "re%C5%BFourceGroups", 1))
	f.Add("GET", strings.Replace(cluster, "Edge", "providers", 1)+"/flexNodeConfig/providers")
	l := w.api.listener(callers{w}, true)
	f.Fuzz(func(t *testing.T, method, path string) {
		hr, err := http.NewRequest(method, publicURL+"/"+strings.TrimLeft(path, "/"), nil)
		if err != nil {
			return
		}
		r := &request{Request: hr, listener: l, query: lowerKeys(hr.URL.RawQuery)}
		if l.match(r) != nil || r.checkNames() != nil {
			return
		}
		prefix := ""
		if s := r.names.of("subscription"); s != "" {
			prefix = "/subscriptions/" + s
		}
		group := r.names.of("group")
		if group != "" {
			prefix += "/resourceGroups/" + group
		}
		id, err := arm.Parse(r.scope())
		if err != nil || id.Subscription != r.names.of("subscription") || id.ResourceGroup != group ||
			!arm.Within(r.scope(), prefix) {
			t.Errorf("%s %s: %s is %+v, %v", method, path, r.scope(), id, err)
		}
		if !r.route.action && arm.Key(r.scope()) != arm.Key(hr.URL.Path) {
			t.Errorf("%s %s is asked for as %s", method, path, r.scope())
		}
	})
}
