package rp

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
)

// request is one request on its way through the steps of Front.serve.
type request struct {
	*http.Request
	route *route
	// names are the variable segments of the path, by name in the route, in the caller's casing.
	names map[string]string
	query url.Values // keys in lower case
	body  []byte
	// caller is who asks, once it is known.
	caller Caller
	// front is where the request came in.
	front *Front
	id    string // x-ms-request-id
	key   string // nodeKey, once it was asked for
	// before and after are what the audit log tells of a change: versions.
	before, after string
}

// Caller is an authenticated principal.
type Caller struct {
	TenantID, ObjectID, AppID string
	Name                      string // user principal name, else application id
	Type                      string // User, Application or ManagedIdentity
	MachineID                 string // resource id of a managed identity's resource
	// Trusted callers were authorized by Resource Manager, which stands in front.
	Trusted bool
}

// agent tells whether the caller is the identity of a node (store.Node.Agent).
func (c Caller) agent(identity string) bool {
	if identity == "" {
		return false
	}
	return slices.Contains([]string{"app:" + strings.ToLower(c.AppID), "oid:" + strings.ToLower(c.ObjectID), "mirid:" + strings.ToLower(c.MachineID)}, identity)
}

// clusterKey is how the request's cluster is stored.
func (r *request) clusterKey() string {
	return strings.ToLower(r.names["subscription"] + "/" + r.names["group"] + "/" + r.names["cluster"])
}

// nodeKey is how the request's node is stored.
func (r *request) nodeKey() string {
	if r.key == "" {
		r.key = r.clusterKey() + "/" + strings.ToLower(r.names["node"])
	}
	return r.key
}

// resourceID is the id of the resource that the request is about, as the caller wrote it, without the name of an action.
func (r *request) resourceID() string {
	path := "/" + strings.Trim(r.originalPath(), "/")
	if r.route.action {
		path = path[:strings.LastIndex(path, "/")]
	}
	return path
}

// originalPath is the path that the caller used: ARM tells it in Referer, and its casing counts if it is the same resource.
func (r *request) originalPath() string {
	if u := r.referer(); u != nil && strings.EqualFold(strings.Trim(u.Path, "/"), strings.Trim(r.URL.Path, "/")) {
		return u.Path
	}
	return r.URL.Path
}

// referer is the URL that the caller of Resource Manager used; nil where callers come directly, because anybody can send it.
func (r *request) referer() *url.URL {
	if !r.caller.Trusted {
		return nil
	}
	u, err := url.Parse(r.Header.Get("Referer"))
	if err != nil || u.Host == "" || u.Scheme != "https" {
		return nil
	}
	return u
}

// publicURL is the URL of this request as its caller knows it.
func (r *request) publicURL() url.URL {
	if u := r.referer(); u != nil {
		return *u
	}
	return url.URL{Scheme: "https", Host: r.Host, Path: r.URL.Path, RawQuery: r.URL.RawQuery}
}

// preconditions checks If-Match and If-None-Match against what there is; etag is "" for nothing (RPC, ETags).
func (r *request) preconditions(etag string) error {
	if want := r.Header.Get("If-Match"); want != "" {
		missing := etag == "" && r.Method != http.MethodDelete // deleting what is not there has been done
		if missing || etag != "" && !listed(want, etag) {
			return arm.Errorf(412, "PreconditionFailed", "The condition '%s' in the If-Match header was not satisfied. The current ETag is '%s'.", want, etag)
		}
	}
	if no := r.Header.Get("If-None-Match"); no != "" && etag != "" && listed(no, etag) {
		return arm.Errorf(412, "PreconditionFailed", "The condition '%s' in the If-None-Match header was not satisfied: the resource is there.", no)
	}
	return nil
}

// listed tells whether a list of ETags has one; * has them all (RFC 9110, section 13.1).
func listed(list, etag string) bool {
	for one := range strings.SplitSeq(list, ",") {
		one = strings.TrimPrefix(strings.TrimSpace(one), "W/")
		if one == "*" || one == etag {
			return true
		}
	}
	return false
}

// checkVersion checks the api-version.
func (r *request) checkVersion() error {
	given := r.query["api-version"]
	if len(given) == 0 || given[0] == "" {
		return arm.Errorf(400, "MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required for all requests.")
	}
	if len(given) > 1 {
		return arm.Errorf(400, "InvalidApiVersionParameter", "The api-version query parameter is given %d times.", len(given))
	}
	version := given[0]
	supported := api.APIVersion
	if r.route != nil && r.route.version != "" {
		supported = r.route.version
	}
	if strings.EqualFold(version, supported) {
		return nil
	}
	if !matches(`(?i)\d{4}-\d{2}-\d{2}(-[a-z]+)?`, version) {
		return arm.Errorf(400, "InvalidApiVersionParameter", "The api-version '%s' is invalid. The supported versions are '%s'.", shorten(version), supported)
	}
	kind := namespace
	if r.route != nil && r.route.kind != "" {
		kind = r.route.kind
	}
	return arm.Errorf(400, "NoRegisteredProviderFound", "No registered resource provider found for API version '%s' for type '%s'. The supported api-versions are '%s'.", version, kind, supported)
}

// shorten keeps what a caller sent from filling an answer or a log.
func shorten(s string) string {
	const most = 100
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}

// checkNames checks the variable segments of the path. It is on the way of every poll, so it uses no regular expressions.
func (r *request) checkNames() error {
	for _, rule := range []struct {
		name string
		good func(string) bool
		code string
		what string
	}{
		{"subscription", isGUID, "InvalidSubscriptionId", "The provided subscription identifier '%s' is malformed or invalid."},
		{"group", isGroup, "InvalidResourceGroupName", "The resource group name '%s' is invalid."},
		{"cluster", isCluster, "InvalidResourceName", "The cluster name '%s' is invalid: 1 to 63 letters, digits, '-' and '_', a letter or digit first and last."},
		{"node", isNode, "InvalidResourceName", "The node name '%s' is invalid: in lower case it must be the name of a Kubernetes node (DNS-1123: letters, digits, '-' and '.', at most 253)."},
	} {
		if value, there := r.names[rule.name]; there && !rule.good(value) {
			return arm.Errorf(400, rule.code, rule.what, shorten(value))
		}
	}
	return nil
}

func isGUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (s[i] == '-') || !dash && !isHex(s[i]) {
			return false
		}
	}
	return true
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f' }

func isAlphanumeric(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' }

// isGroup follows ARM's rules for names of resource groups.
func isGroup(s string) bool {
	for _, c := range s {
		if !unicode.IsLetter(c) && !unicode.IsNumber(c) && !strings.ContainsRune("_().-", c) {
			return false
		}
	}
	return s != "" && utf8.RuneCountInString(s) <= 90 && !strings.HasSuffix(s, ".")
}

func isCluster(s string) bool { return isWord(s, "-_") }

// isNode tells whether a name is, in lower case, a DNS-1123 subdomain.
func isNode(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if !isWord(label, "-") {
			return false
		}
	}
	return len(s) <= 253
}

// isWord is 1 to 63 letters and digits, with others of a few in between.
func isWord(s, between string) bool {
	if len(s) == 0 || len(s) > 63 || !isAlphanumeric(s[0]) || !isAlphanumeric(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && strings.IndexByte(between, s[i]) < 0 {
			return false
		}
	}
	return true
}

// scope is what permission is asked for.
func (r *request) scope() string { return "/" + strings.Trim(r.resourceID(), "/") }
