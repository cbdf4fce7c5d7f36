package front

import (
	"cmp"
	"net/http"
	"strings"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
)

// object is a JSON object.
type object = map[string]any

// listOperations answers what the provider can be asked for, made of the routes themselves.
func (a *API) listOperations(w http.ResponseWriter, _ *request) error {
	value, known := []object{}, map[string]bool{"": true}
	for _, route := range a.routes() {
		if known[route.permission] {
			continue
		}
		known[route.permission] = true
		value = append(value, object{
			"name": route.permission, "isDataAction": false, "origin": "user,system",
			"display": object{
				"provider":  namespace,
				"resource":  strings.TrimPrefix(cmp.Or(route.kind, namespace), namespace+"/"),
				"operation": route.what, "description": route.what + ".",
			},
		})
	}
	arm.WriteJSON(w, http.StatusOK, api.List[object]{Value: value})
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
