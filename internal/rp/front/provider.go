package front

import (
	"net/http"
	"slices"
	"strings"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
)

// object is a JSON object.
type object = map[string]any

// described is an operation in the list of operations (RPC, operations).
type described struct {
	Name         string  `json:"name"`
	IsDataAction bool    `json:"isDataAction"`
	Display      display `json:"display"`
	Origin       string  `json:"origin"`
}

type display struct {
	Provider    string `json:"provider"`
	Resource    string `json:"resource"`
	Operation   string `json:"operation"`
	Description string `json:"description"`
}

// listOperations answers what the provider can be asked for, made of the routes themselves.
func (a *API) listOperations(w http.ResponseWriter, _ *request) error {
	value := []described{}
	for _, route := range a.routes() {
		known := slices.ContainsFunc(value, func(o described) bool {
			return o.Name == route.permission
		})
		if route.permission == "" || known {
			continue
		}
		kind := route.kind
		if kind == "" {
			kind = namespace
		}
		value = append(value, described{
			Name: route.permission, Origin: "user,system",
			Display: display{
				Provider: namespace, Resource: strings.TrimPrefix(kind, namespace+"/"),
				Operation: route.what, Description: route.what + ".",
			},
		})
	}
	arm.WriteJSON(w, http.StatusOK, api.List[described]{Value: value})
	return nil
}

// getProvider answers the metadata of the provider, which clients read api-versions from.
func (a *API) getProvider(w http.ResponseWriter, r *request) error {
	state := "NotRegistered"
	if known := a.Index.Subscription(r.subscriptionKey()); known != "" && known != unregistered {
		state = registered
	}
	kinds := []object{}
	for _, kind := range []string{
		"managedClusters", "managedClusters/flexNodeConfig", "locations/operationStatuses",
		"locations/operationResults", "locations/usages",
	} {
		kinds = append(kinds, object{
			"resourceType": kind, "locations": []string{},
			"apiVersions": []string{api.APIVersion}, "capabilities": "None",
		})
	}
	arm.WriteJSON(w, http.StatusOK, object{
		"id":        "/subscriptions/" + r.names.of("subscription") + "/providers/" + namespace,
		"namespace": namespace, "registrationState": state,
		"registrationPolicy": "RegistrationRequired", "resourceTypes": kinds,
	})
	return nil
}
