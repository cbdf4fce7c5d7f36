package rp

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
)

const (
	namespace   = "Microsoft.ContainerService"
	clusterType = namespace + "/managedClusters"
)

// handler answers a request, or returns why it does not: an *arm.Error, or anything else, which the caller does not get to see.
type handler func(http.ResponseWriter, *request) error

// route is one operation.
type route struct {
	method, pattern string
	// permission is the action that the caller must be allowed to do; "" for none.
	permission string
	kind       string // resource type
	handle     handler
	version    string // api-version, if it is not the API's
	// action marks a POST whose last segment is the name of the action.
	action bool
	// own lets a node's own identity do this without a role.
	own bool
	// change marks what a subscription that is not registered or suspended may not do.
	change bool
	// what is the operation in words, for the list of operations.
	what string
	// open needs no caller: it says what is public.
	open     bool
	segments []string
}

// routes are all operations of the API.
func (s *Server) routes() []route {
	const (
		subscription = "/subscriptions/{subscription}"
		provider     = subscription + "/providers/" + namespace
		clusters     = subscription + "/resourceGroups/{group}/providers/" + clusterType
		cluster      = clusters + "/{cluster}"
		nodes        = cluster + "/flexNodeConfig"
		node         = nodes + "/{node}"
		nodeType     = api.ResourceType
		get, put     = http.MethodGet, http.MethodPut
		post, remove = http.MethodPost, http.MethodDelete
	)
	table := []route{
		{method: get, pattern: node, permission: nodeType + "/read", kind: nodeType, handle: s.getNode, own: true, what: "Get the configuration and status of a flex node"},
		{method: post, pattern: node + "/reportStatus", permission: nodeType + "/reportStatus/action", kind: nodeType, handle: s.reportStatus, own: true, action: true, change: true, what: "Report the status of a flex node"},
		{method: put, pattern: node, permission: nodeType + "/write", kind: nodeType, handle: s.putNode, change: true, what: "Create or replace the configuration of a flex node"},
		{method: get, pattern: nodes, permission: nodeType + "/read", kind: nodeType, handle: s.listNodes, what: "List the flex nodes of a cluster"},
		{method: remove, pattern: node, permission: nodeType + "/delete", kind: nodeType, handle: s.deleteNode, what: "Delete the configuration of a flex node"},
		{method: post, pattern: node + "/regenerateToken", permission: nodeType + "/regenerateToken/action", kind: nodeType, handle: s.regenerateToken, action: true, change: true, what: "Make a new bootstrap token and configuration URL"},
		{method: post, pattern: node + "/listConfigUrl", permission: nodeType + "/listConfigUrl/action", kind: nodeType, handle: s.listConfigURL, action: true, what: "Get the configuration URL that is in force"},

		{method: get, pattern: cluster, permission: clusterType + "/read", kind: clusterType, handle: s.getCluster, what: "Get a target cluster"},
		{method: put, pattern: cluster, permission: clusterType + "/write", kind: clusterType, handle: s.putCluster, change: true, what: "Register a target cluster"},
		{method: remove, pattern: cluster, permission: clusterType + "/delete", kind: clusterType, handle: s.deleteCluster, what: "Remove a target cluster and its flex nodes from the provider"},
		{method: get, pattern: clusters, permission: clusterType + "/read", kind: clusterType, handle: s.listClusters, what: "List the target clusters of a resource group"},
		{method: get, pattern: provider + "/managedClusters", permission: clusterType + "/read", kind: clusterType, handle: s.listClusters, what: "List the target clusters of a subscription"},

		{method: get, pattern: "/providers/" + namespace + "/operations", handle: s.listOperations, open: true, what: "List the operations"},
		{method: get, pattern: provider, handle: s.getProvider, version: "2021-04-01", what: "Get the metadata of the provider"},
		{method: post, pattern: provider + "/register", permission: namespace + "/register/action", handle: s.register, action: true, version: "2021-04-01", what: "Register a subscription with the provider"},
		{method: put, pattern: subscription, permission: namespace + "/register/action", handle: s.putSubscription, version: "2.0", what: "Tell the provider the state of a subscription"},
	}
	for i := range table {
		table[i].segments = split(table[i].pattern)
	}
	return table
}

func split(path string) []string { return strings.Split(strings.Trim(path, "/"), "/") }

// match finds the operation of a request. Segments are compared without regard to case, which ARM ignores.
func (f *Front) match(r *request) error {
	segments := split(r.URL.EscapedPath())
	for i, s := range segments {
		plain, err := url.PathUnescape(s)
		if err != nil || plain == "" || plain == "." || plain == ".." || strings.ContainsAny(plain, "/\\") {
			return arm.Errorf(400, "InvalidResourceId", "The request path '%s' is not valid.", shorten(r.URL.Path))
		}
		segments[i] = plain
	}
	var allowed []string
	for i := range f.routes {
		names, ok := fits(f.routes[i].segments, segments)
		if !ok {
			continue
		}
		if f.routes[i].method == r.Method {
			r.route, r.names = &f.routes[i], names
			return nil
		}
		allowed = append(allowed, f.routes[i].method)
	}
	if allowed != nil {
		return methodNotAllowed{allowed}
	}
	return unknownPath(segments, r.query.Get("api-version"))
}

// fits compares the segments of a path with those of a route.
func fits(pattern, segments []string) (map[string]string, bool) {
	if len(pattern) != len(segments) {
		return nil, false
	}
	for i, p := range pattern {
		if p[0] != '{' && !strings.EqualFold(p, segments[i]) {
			return nil, false
		}
	}
	names := make(map[string]string, 4)
	for i, p := range pattern {
		if p[0] == '{' {
			names[p[1:len(p)-1]] = segments[i]
		}
	}
	return names, true
}

type methodNotAllowed struct{ allowed []string }

func (m methodNotAllowed) Error() string { return "method not allowed" }

// unknownPath tells what of a path is not known.
func unknownPath(segments []string, version string) error {
	at := slices.IndexFunc(segments, func(s string) bool { return strings.EqualFold(s, "providers") })
	if at < 0 || at+1 >= len(segments) {
		return arm.Errorf(404, "NotFound", "There is nothing at this path.")
	}
	if !strings.EqualFold(segments[at+1], namespace) {
		return arm.Errorf(404, "InvalidResourceNamespace", "The resource namespace '%s' is invalid.", shorten(segments[at+1]))
	}
	var types []string
	for i := at + 2; i < len(segments); i += 2 {
		types = append(types, segments[i])
	}
	return arm.Errorf(404, "InvalidResourceType", "The resource type '%s' could not be found in the namespace '%s' for api version '%s'. The supported api-versions are '%s'.",
		shorten(strings.Join(types, "/")), namespace, shorten(version), api.APIVersion)
}
