package rp

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	store "github.com/Azure/AKSFlexNode/internal/rp/oldstore"
)

// listOperations answers what the provider can be asked for, made of the routes themselves (RPC, operations).
func (s *Server) listOperations(w http.ResponseWriter, r *request) error {
	type display struct {
		Provider    string `json:"provider"`
		Resource    string `json:"resource"`
		Operation   string `json:"operation"`
		Description string `json:"description"`
	}
	type operation struct {
		Name         string  `json:"name"`
		IsDataAction bool    `json:"isDataAction"`
		Display      display `json:"display"`
		Origin       string  `json:"origin"`
	}
	value := []operation{}
	for _, route := range s.routes() {
		known := slices.ContainsFunc(value, func(o operation) bool { return o.Name == route.permission })
		if route.permission == "" || known {
			continue
		}
		kind := route.kind
		if kind == "" {
			kind = namespace
		}
		value = append(value, operation{Name: route.permission, Origin: "user,system",
			Display: display{Provider: namespace, Resource: strings.TrimPrefix(kind, namespace+"/"), Operation: route.what, Description: route.what + "."}})
	}
	arm.WriteJSON(w, http.StatusOK, api.List[operation]{Value: value})
	return nil
}

// getProvider answers the metadata of the provider, which clients read api-versions from.
func (s *Server) getProvider(w http.ResponseWriter, r *request) error {
	state := "NotRegistered"
	if known := s.Index.SubscriptionState(strings.ToLower(r.names["subscription"])); known != "" && known != "Unregistered" {
		state = "Registered"
	}
	kinds := []object{}
	for _, kind := range []string{"managedClusters", "managedClusters/flexNodeConfig"} {
		kinds = append(kinds, object{"resourceType": kind, "locations": []string{}, "apiVersions": []string{api.APIVersion}, "capabilities": "None"})
	}
	arm.WriteJSON(w, http.StatusOK, object{
		"id": "/subscriptions/" + r.names["subscription"] + "/providers/" + namespace, "namespace": namespace,
		"registrationState": state, "registrationPolicy": "RegistrationRequired", "resourceTypes": kinds,
	})
	return nil
}

// register registers a subscription, as clients do that were told MissingSubscriptionRegistration.
func (s *Server) register(w http.ResponseWriter, r *request) error {
	key := strings.ToLower(r.names["subscription"])
	row, err := s.Store.Subscriptions.Get(r.Context(), key)
	if err != nil {
		return err
	}
	if !row.Exists() || row.Value.State == "Unregistered" {
		txn := s.Store.Txn()
		s.Store.Subscriptions.Set(txn, key, store.Subscription{State: "Registered", RegistrationDate: s.Now().UTC().Format(time.RFC1123)})
		if _, err := s.commit(r.Context(), "subscription written", txn); err != nil {
			return err
		}
	}
	arm.WriteJSON(w, http.StatusOK, object{"id": "/subscriptions/" + r.names["subscription"] + "/providers/" + namespace, "namespace": namespace, "registrationState": "Registered"})
	return nil
}

// putSubscription is how ARM tells the state of a subscription (RPC, subscription lifecycle). Deleting one deletes all in it.
func (s *Server) putSubscription(w http.ResponseWriter, r *request) error {
	var body store.Subscription
	if err := json.Unmarshal(r.body, &body); err != nil {
		return arm.Errorf(400, "InvalidRequestContent", "The request content was invalid and could not be deserialized.")
	}
	states := []string{"Registered", "Unregistered", "Warned", "Suspended", "Deleted"}
	if !slices.Contains(states, body.State) {
		return arm.Errorf(400, "InvalidParameter", "The state '%s' is not one of %s.", shorten(body.State), strings.Join(states, ", "))
	}
	key := strings.ToLower(r.names["subscription"])
	txn := s.Store.Txn()
	s.Store.Subscriptions.Set(txn, key, body)
	if _, err := s.commit(r.Context(), "subscription written", txn); err != nil {
		return err
	}
	if body.State == "Deleted" {
		clusters, err := s.Store.Clusters.List(r.Context(), key+"/")
		if err != nil {
			return err
		}
		for _, c := range clusters {
			if err := s.emptyCluster(r.Context(), c.Key); err != nil {
				return err
			}
			txn := s.Store.Txn()
			s.Store.Clusters.Clear(txn, c.Key)
			if _, err := s.commit(r.Context(), "cluster deleted", txn); err != nil {
				return err
			}
		}
	}
	arm.WriteJSON(w, http.StatusOK, body)
	return nil
}

// checkSubscription keeps subscriptions that are not in order from changing anything (RPC, subscription states).
func (s *Server) checkSubscription(r *request) error {
	id, there := r.names["subscription"]
	if !there || r.route.kind == "" {
		return nil
	}
	state := s.Index.SubscriptionState(strings.ToLower(id))
	if state == "" { // the index may be behind
		row, err := s.Store.Subscriptions.Get(r.Context(), strings.ToLower(id))
		if err != nil {
			return err
		}
		state = row.Value.State
	}
	switch state {
	case "":
		if r.route.change {
			return arm.Errorf(409, "MissingSubscriptionRegistration", "The subscription is not registered to use namespace '%s'. See https://aka.ms/rps-not-found for how to register subscriptions.", namespace)
		}
	case "Deleted":
		return arm.Errorf(404, "SubscriptionNotFound", "The subscription '%s' could not be found.", id)
	case "Warned", "Suspended":
		if r.route.change {
			return arm.Errorf(409, "InvalidSubscriptionState", "The subscription '%s' is %s: its resources can be read and deleted only.", id, state)
		}
	case "Unregistered":
		if r.Method != http.MethodGet {
			return arm.Errorf(409, "MissingSubscriptionRegistration", "The subscription is not registered to use namespace '%s'. See https://aka.ms/rps-not-found for how to register subscriptions.", namespace)
		}
	}
	return nil
}
