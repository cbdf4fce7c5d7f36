package front

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// The states of a subscription (RPC, subscription lifecycle).
const (
	registered   = "Registered"
	unregistered = "Unregistered"
	warned       = "Warned"
	suspended    = "Suspended"
	deleted      = "Deleted"
)

// register registers a subscription, and keeps the properties that ARM has sent.
func (a *API) register(r *request) (any, error) {
	key := r.subscriptionKey()
	err := a.change(r, "subscription written", func(v *store.View) error {
		row := a.Store.Subscriptions.Row(v, key)
		if row.Exists() && row.Value.State != unregistered {
			return r.allowedIn(row.Value.State)
		}
		row.Value.State, row.Value.RegistrationDate = registered, a.Now().UTC().Format(time.RFC1123)
		return a.Store.Subscriptions.Put(v, key, row.Value)
	})
	return r.provider(registered), err
}

func (r *request) provider(state string) object {
	return object{
		"id":        "/subscriptions/" + r.name("subscription") + "/providers/" + namespace,
		"namespace": namespace, "registrationState": state,
	}
}

// putSubscription receives a subscription's state from ARM (RPC, subscription lifecycle).
// Reconcilers delete the registrations of a deleted one; no machine is wiped.
func (a *API) putSubscription(r *request) (any, error) {
	var body flexnode.Subscription
	if err := json.Unmarshal(r.body, &body); err != nil {
		return nil, arm.Errorf(400, "InvalidRequestContent",
			"The request content was invalid and could not be deserialized.")
	}
	states := []string{registered, unregistered, warned, suspended, deleted}
	if !slices.Contains(states, body.State) {
		return nil, invalid("The state '%s' is not one of %s.",
			shorten(body.State), strings.Join(states, ", "))
	}
	key := r.subscriptionKey()
	err := a.change(r, "subscription written", func(v *store.View) error {
		row := a.Store.Subscriptions.Row(v, key)
		r.before, r.after = row.Value.State, body.State
		return a.Store.Subscriptions.Put(v, key, body)
	})
	if err == nil && body.State == deleted {
		err = a.deleteClusters(r, key)
	}
	return body, err
}

// deleteClusters marks all registrations of a deleted subscription. No other is made meanwhile,
// since that depends on the row of the subscription.
func (a *API) deleteClusters(r *request, subscription string) error {
	rows, _, err := a.Store.Clusters.List(r.Context(), subscription+"/")
	if err != nil {
		return err
	}
	for _, c := range rows {
		operation := subscription + "/" + uuid.NewString()
		err := a.change(r, "cluster marked", func(v *store.View) error {
			row := a.Store.Clusters.Row(v, c.Key)
			if !row.Exists() || row.Value.Deleting() {
				return nil
			}
			return a.beginDeletion(v, row, operation, false, r.caller.ObjectID)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// checkSubscription refuses changes in subscriptions that are not in order (RPC, states).
func (a *API) checkSubscription(r *request) error {
	if r.name("subscription") == "" || r.route.kind == "" ||
		r.allowedIn(a.Index.Subscription(r.subscriptionKey())) == nil {
		return nil
	}
	row, err := a.Store.Subscriptions.Get(r.Context(), r.subscriptionKey()) // the index may be behind
	if err != nil {
		return err
	}
	return r.allowedIn(row.Value.State)
}

// allowedIn returns an error if the request may not be made in a subscription in a state.
func (r *request) allowedIn(state string) error {
	id := r.name("subscription")
	switch {
	case state == "" && r.route.change,
		state == unregistered && r.Method != http.MethodGet && r.route.action != "leave":
		return arm.Errorf(409, "MissingSubscriptionRegistration",
			"The subscription is not registered to use namespace '%s'. See "+
				"https://aka.ms/rps-not-found for how to register subscriptions.", namespace)
	case state == deleted:
		return arm.Errorf(404, "SubscriptionNotFound", "The subscription '%s' could not be found.", id)
	case (state == warned || state == suspended) && r.route.change:
		return arm.Errorf(409, "InvalidSubscriptionState",
			"The subscription '%s' is %s: its resources can be read and deleted only.", id, state)
	}
	return nil
}

type object = map[string]any

// listOperations answers with the provider's operations, made from the routes.
func (a *API) listOperations(*request) (any, error) {
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
	return api.List[object]{Value: value}, nil
}

// getProvider answers with the provider's metadata, where clients find api-versions.
func (a *API) getProvider(r *request) (any, error) {
	state, known := registered, a.Index.Subscription(r.subscriptionKey())
	if known == "" || known == unregistered || known == deleted {
		state = "NotRegistered"
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
	answer := r.provider(state)
	answer["registrationPolicy"], answer["resourceTypes"] = "RegistrationRequired", kinds
	return answer, nil
}
