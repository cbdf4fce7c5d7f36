package front

import (
	"cmp"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/machinekey"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// uidHeader is the header in which agents send the uid of their node.
const uidHeader = "X-Ms-Flexnode-Uid"

// trialHeader is the header of an agent's poll that only tests whether it is answered.
const trialHeader = "X-Ms-Flexnode-Trial"

// request is one request on its way through the steps of serve.
type request struct {
	*http.Request
	answer   *response
	listener *listener
	route    *route
	segments []string   // of the path, once it has a route
	query    url.Values // keys in lower case
	badQuery error      // the query does not parse
	body     []byte
	// caller is the request's caller, once it is known.
	caller Caller
	// node reports that the caller is, or was, the node that the request is about, own that it was
	// authorized as that node, or as a deleted one, without a role.
	node, own bool
	id        string // x-ms-request-id
	key       string // nodeKey, once it was used
	// uid is the uid of the node that the caller claims to be, in lower case; "" for people.
	uid string
	// known holds the index's data of the node; nil until it is read.
	known *store.Poll
	// waited is the time that a poll has waited for its node to change.
	waited time.Duration
	// byNode reports that it counts as the node's own, place is its place at the gate.
	byNode   bool
	place    *fair.Place
	bodyRead bool
	// before and after are versions, for the audit log of a change.
	before, after string
}

func (r *request) subscriptionKey() string { return arm.Fold(r.name("subscription")) }

func (r *request) clusterKey() string {
	return arm.Fold(r.name("subscription") + "/" + r.name("group") + "/" + r.name("cluster"))
}

// nodeKey returns the key under which the request's node is stored.
func (r *request) nodeKey() string {
	if r.key == "" {
		r.key = r.clusterKey() + "/" + arm.Fold(r.name("node"))
	}
	return r.key
}

// resourceID returns the id of the request's resource as the caller wrote it, without an action.
func (r *request) resourceID() string {
	path := "/" + strings.Trim(r.originalPath(), "/")
	if r.route.action != "" {
		path = path[:strings.LastIndex(path, "/")]
	}
	return path
}

// scope returns the scope that needs the permission: the route with its names, so that it always
// has the form that roles and denials are compared with.
func (r *request) scope() string {
	scope := ""
	for i, s := range r.route.segments {
		if s[0] == '{' {
			s = r.segments[i]
		}
		scope += "/" + s
	}
	return strings.TrimSuffix(scope, "/"+r.route.action)
}

// originalPath returns the path that the caller used, which ARM sends in Referer, in its casing.
func (r *request) originalPath() string {
	u := r.referer()
	if u != nil && arm.EqualFold(strings.Trim(u.Path, "/"), strings.Trim(r.URL.Path, "/")) {
		return u.Path
	}
	return r.URL.Path
}

// referer returns the URL that Resource Manager's caller used; nil for others, who can forge it.
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

// publicURL returns the URL of this request as its caller knows it.
func (r *request) publicURL() url.URL {
	if u := r.referer(); u != nil {
		return *u
	}
	u := url.URL{Scheme: "https", Host: r.Host, Path: r.URL.Path, RawQuery: r.URL.RawQuery}
	if public, err := url.Parse(r.listener.api.PublicURL); err == nil && public.Host != "" {
		u.Host = public.Host
	}
	return u
}

// preconditions checks If-Match and If-None-Match; etag is "" for a missing resource (RPC, ETags).
func (r *request) preconditions(etag string) error {
	if want := r.Header.Get("If-Match"); want != "" {
		// A DELETE of a missing resource has succeeded.
		missing := etag == "" && r.Method != http.MethodDelete
		if missing || etag != "" && !listedDesired(want, etag) {
			return arm.Errorf(412, "PreconditionFailed",
				"The condition '%s' in the If-Match header was not satisfied. The current ETag is "+
					"'%s'.", shorten(want), etag)
		}
	}
	if no := r.Header.Get("If-None-Match"); no != "" && etag != "" && listed(no, etag) {
		return arm.Errorf(412, "PreconditionFailed",
			"The condition '%s' in the If-None-Match header was not satisfied: the resource is "+
				"there.", shorten(no))
	}
	return nil
}

// listed reports whether a list of ETags has one; * matches all (RFC 9110, section 13.1).
func listed(list, etag string) bool {
	return slices.ContainsFunc(strings.Split(list, ","), func(one string) bool {
		one = strings.TrimPrefix(strings.TrimSpace(one), "W/")
		return one == "*" || one == etag
	})
}

// listedDesired reports whether a list of ETags has one of the same desired state: a caller that
// has read it may change it, whatever agents are offered since (flexnode.ETag).
func listedDesired(list, etag string) bool {
	if listed(list, etag) {
		return true
	}
	desired := func(one string) string {
		one = strings.Trim(strings.TrimPrefix(strings.TrimSpace(one), "W/"), `"`)
		uid, _, _ := strings.Cut(one, "-")
		return uid + one[strings.LastIndexByte(one, '-')+1:]
	}
	return slices.ContainsFunc(strings.Split(list, ","),
		func(one string) bool { return desired(one) == desired(etag) })
}

var versionForm = regexp.MustCompile(`(?i)\A\d{4}-\d{2}-\d{2}(-[a-z]+)?\z`)

func (r *request) checkVersion() error {
	given := r.query["api-version"]
	if len(given) == 0 || given[0] == "" {
		return arm.Errorf(400, "MissingApiVersionParameter",
			"The api-version query parameter (?api-version=) is required for all requests.")
	}
	if len(given) > 1 {
		return arm.Errorf(400, "InvalidApiVersionParameter",
			"The api-version query parameter is given %d times.", len(given))
	}
	supported, kind := api.APIVersion, namespace
	if r.route != nil {
		supported, kind = cmp.Or(r.route.version, supported), cmp.Or(r.route.kind, kind)
	}
	isVersion := versionForm.MatchString(given[0])
	if strings.EqualFold(given[0], supported) || supported == older && isVersion {
		return nil
	}
	if !isVersion {
		return arm.Errorf(400, "InvalidApiVersionParameter",
			"The api-version '%s' is invalid. The supported versions are '%s'.",
			shorten(given[0]), supported)
	}
	return arm.Errorf(400, "NoRegisteredProviderFound",
		"No registered resource provider found for API version '%s' for type '%s'. The supported "+
			"api-versions are '%s'.", given[0], kind, supported)
}

var flags = []string{"acceptoldcertificate", "configurl", "dryrun", "revokenow"}

// checkQuery rejects a query that does not parse, a flag that is not true or false, and a parameter
// that only other deletions obey: a dry run that counts as none deletes.
func (a *API) checkQuery(r *request) error {
	if r.badQuery != nil {
		return invalid("The query cannot be parsed: %s.", shorten(r.badQuery.Error()))
	}
	for key, values := range r.query {
		value := strings.ToLower(strings.Join(values, ", "))
		if slices.Contains(flags, key) && value != "true" && value != "false" {
			return invalid("The value '%s' of %s is not true or false.", shorten(value), key)
		}
		ofCluster := slices.Contains([]string{"confirm", "dryrun", "nodes"}, key)
		if to := r.route.permission; ofCluster && to != flexnode.ClusterType+"/delete" ||
			key == "revokenow" && to != api.ResourceType+"/delete" && r.route.action != "regenerateToken" {
			return invalid("The parameter %s has no effect on this request: omit it.", key)
		}
	}
	return nil
}

// flag reports whether one of flags is true.
func (r *request) flag(name string) bool {
	return strings.EqualFold(r.query.Get(strings.ToLower(name)), "true")
}

// shorten limits a text from a caller, so that it cannot fill a response or a log.
func shorten(s string) string { return flexnode.Cut(s, 100) }

// maxBody limits a request body unless its route does. ARM's limit is 4 MB.
const maxBody = 256 << 10

func (a *API) readBody(r *request) error {
	if r.Method != http.MethodPut && r.Method != http.MethodPost {
		return nil
	}
	r.bodyRead = true
	most := cmp.Or(r.route.maxBody, maxBody)
	body, err := io.ReadAll(http.MaxBytesReader(r.answer, r.Body, int64(most)))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return arm.Errorf(413, "RequestContentTooLarge",
			"The request content is larger than %d bytes.", most)
	}
	if err != nil {
		return arm.Errorf(400, "InvalidRequestContent", "The request content could not be read.")
	}
	if len(body) > 0 {
		kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if err != nil || kind != "application/json" {
			return arm.Errorf(415, "UnsupportedMediaType",
				"The content media type '%s' is not supported. Only 'application/json' is "+
					"supported.", shorten(r.Header.Get("Content-Type")))
		}
	}
	if want := r.caller.BodyDigest; want != "" && want != machinekey.Digest(body) {
		return badToken("It is for another body.")
	}
	r.body = body
	if r.route.plain {
		return flexnode.DecodeOptional(body, &struct{}{})
	}
	return nil
}
