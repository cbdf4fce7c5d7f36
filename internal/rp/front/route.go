package front

import (
	"slices"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

const (
	namespace = "Microsoft.ContainerService"
	// registerAction does not need a registered subscription.
	registerAction = namespace + "/register/action"
	// older is an api-version of Microsoft.Resources: its clients have several.
	older = "2021-04-01"
)

// handler returns the answer to a request, unless it has written one: a resource, anything else
// that is sent as JSON, or nil for no content. Its error is an *arm.Error, flexnode.Problems, or
// another one, which the caller does not see.
type handler func(*request) (answer any, err error)

// resource is an answer with a resource, which may be a new one, and its ETag.
type resource struct {
	created bool
	etag    string
	shown   any
}

// asked returns a handler of requests whose body is read with flexnode.Decode or one like it.
func asked[T any](
	decode func(body []byte, into any) error, handle func(*request, T) (any, error),
) handler {
	return func(r *request) (any, error) {
		var ask T
		if err := decode(r.body, &ask); err != nil {
			return nil, err
		}
		return handle(r, ask)
	}
}

type route struct {
	method, pattern string
	// what describes the operation in the list of operations.
	what   string
	handle handler
	// permission is the action that the caller must be allowed to do; "" for none.
	permission string
	kind       string // resource type
	version    string // api-version, if it is not the API's
	// action is the name of a POST, which is the last segment of its path; "" for none.
	action string
	// plain marks an action without parameters in its body.
	plain bool
	// own lets a node itself do this without a role.
	own bool
	// registers is open to a machine whose key no node has, and hidden from Resource Manager;
	// managerOnly is hidden from all others.
	registers, managerOnly bool
	// maxBody limits the request body, in bytes; 0 is the general limit.
	maxBody int
	// many marks a request with a large answer, as about many resources: it counts as a list.
	many bool
	// bucket is the kind of a limit of each node, besides that for all its requests; "" for none.
	bucket fair.Kind
	// change marks a request that an unregistered or suspended subscription may not make.
	change bool
	// open needs no caller: the answer is public.
	open     bool
	segments []string
}

const (
	inSubscription = "/subscriptions/{subscription}"
	inProvider     = inSubscription + "/providers/" + namespace
	inClusters     = inSubscription + "/resourceGroups/{group}/providers/" + flexnode.ClusterType
	inCluster      = inClusters + "/{cluster}"
	inNodes        = inCluster + "/flexNodeConfig"
	inNode         = inNodes + "/{node}"
	inOperations   = inProvider + "/locations/{location}"
)

func (a *API) routes() []route {
	table := slices.Concat(a.nodeRoutes(), a.clusterRoutes(), a.providerRoutes())
	for i := range table {
		table[i].segments = split(table[i].pattern)
	}
	return table
}

// of completes routes of a resource type, with which their permissions begin.
func of(kind string, table []route) []route {
	for i := range table {
		r := &table[i]
		if r.action != "" {
			r.method, r.pattern, r.permission = "POST", r.pattern+"/"+r.action, r.action+"/action"
		}
		r.kind, r.permission = kind, kind+"/"+r.permission
	}
	return table
}

func (a *API) nodeRoutes() []route {
	return of(api.ResourceType, []route{
		{method: "GET", pattern: inNode, permission: "read", own: true, handle: a.getNode,
			what: "Get the configuration and status of a flex node"},
		{action: "reportStatus", pattern: inNode, own: true, change: true, bucket: fair.Reports,
			maxBody: flexnode.MaxReport, handle: a.reportStatus, what: "Report the status of a flex node"},
		{action: "beginChange", pattern: inNode, own: true, change: true, bucket: fair.Reports,
			handle: asked(flexnode.DecodeLenient, a.beginChange),
			what:   "Ask whether a flex node may begin with a change, as the flex node itself"},
		{action: "reportDiagnosis", pattern: inNode, own: true, change: true, bucket: fair.Reports,
			maxBody: flexnode.MaxDiagnosed, handle: a.reportDiagnosis,
			what: "Report the diagnosis that a flex node is asked for, as the flex node itself"},
		{action: "registerKey", pattern: inNode, own: true, registers: true, change: true,
			bucket: fair.Reports, handle: asked(flexnode.DecodeLenient, a.registerKey),
			what: "Register the key of a machine as that of a flex node, as the machine itself"},
		{action: "leave", pattern: inNode, own: true, bucket: fair.Reports,
			handle: asked(flexnode.DecodeLenient, a.leave),
			what:   "Delete the Node of a flex node that leaves its cluster, as the flex node itself"},
		{method: "PUT", pattern: inNode, permission: "write", change: true, handle: a.putNode,
			what: "Create or replace the configuration of a flex node"},
		{method: "GET", pattern: inNodes, permission: "read", many: true, handle: a.listNodes,
			what: "List the flex nodes of a cluster"},
		{method: "DELETE", pattern: inNode, permission: "delete", handle: a.deleteNode,
			what: "Delete the configuration of a flex node"},
		{action: "regenerateToken", pattern: inNode, plain: true, change: true,
			handle: a.regenerateToken, what: "Make a new bootstrap token and configuration URL"},
		{action: "listConfigUrl", pattern: inNode, plain: true, change: true, handle: a.listConfigURL,
			what: "Get the configuration URL that is in force, or the first one"},
		{action: "listHistory", pattern: inNode, plain: true, many: true, handle: a.listHistory,
			what: "List the configurations of a flex node that are kept"},
		{action: "diff", pattern: inNode, many: true,
			handle: asked(flexnode.DecodeOptional, a.diffRevisions),
			what:   "Compare two configurations of a flex node"},
		{action: "rollback", pattern: inNode, change: true, handle: asked(flexnode.Decode, a.rollBack),
			what: "Have a flex node be configured as it was before"},
		{action: "diagnose", pattern: inNode, change: true, handle: asked(flexnode.Decode, a.diagnose),
			what: "Ask the machine of a flex node for a diagnosis"},
		{action: "listDiagnosis", pattern: inNode, plain: true, many: true, handle: a.listDiagnosis,
			what: "Get the diagnosis that a flex node was asked for last"},
		{action: "refreshCredentials", pattern: inNode, own: true, change: true,
			bucket: fair.Refreshes, handle: asked(flexnode.DecodeLenient, a.refreshCredentials),
			what: "Get the credentials of the desired configuration, as the flex node itself"},
	})
}

func (a *API) clusterRoutes() []route {
	return of(flexnode.ClusterType, []route{
		{method: "GET", pattern: inCluster, permission: "read", handle: a.getCluster,
			what: "Get a target cluster"},
		{method: "PUT", pattern: inCluster, permission: "write", change: true,
			handle: asked(flexnode.Decode, a.putCluster), what: "Register a target cluster"},
		{method: "DELETE", pattern: inCluster, permission: "delete", handle: a.deleteCluster,
			what: "Remove a target cluster and its flex nodes from the provider"},
		{action: "abort", pattern: inCluster, handle: a.abort,
			what: "Abort the deletion of a target cluster while flex nodes are left"},
		{action: "summarizeFlexNodes", pattern: inCluster, plain: true, many: true,
			handle: a.summarizeNodes, what: "Count the flex nodes of a cluster"},
		{action: "allowVersions", pattern: inCluster, change: true,
			handle: asked(flexnode.DecodeOptional, a.allowVersions),
			what:   "Offer flex nodes versions that others have failed to run"},
		{method: "GET", pattern: inClusters, permission: "read", many: true, handle: a.listClusters,
			what: "List the target clusters of a resource group"},
		{method: "GET", pattern: inProvider + "/managedClusters", permission: "read",
			many: true, handle: a.listClusters, what: "List the target clusters of a subscription"},
	})
}

func (a *API) providerRoutes() []route {
	return []route{
		{method: "GET", pattern: inOperations + "/operationStatuses/{operation}",
			handle: a.getOperationStatus, what: "Get the status of an asynchronous operation"},
		{method: "GET", pattern: inOperations + "/operationResults/{operation}",
			handle: a.getOperationResult, what: "Get the result of an asynchronous operation"},
		{method: "GET", pattern: inOperations + "/usages", kind: namespace + "/locations/usages",
			permission: namespace + "/locations/usages/read", many: true, handle: a.listUsages,
			what: "List what a subscription uses of its quotas"},
		{method: "GET", pattern: "/providers/" + namespace + "/operations", open: true,
			handle: a.listOperations, what: "List the operations"},
		{method: "GET", pattern: inProvider, version: older, handle: a.getProvider,
			what: "Get the metadata of the provider"},
		{method: "POST", pattern: inProvider + "/register", version: older, action: "register",
			permission: registerAction, handle: a.register,
			what: "Register a subscription with the provider"},
		{method: "PUT", pattern: inSubscription, version: "2.0", managerOnly: true,
			handle: a.putSubscription, what: "Tell the provider the state of a subscription"},
	}
}
