package azuresim

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// review holds the fields of an authorization.k8s.io/v1 SubjectAccessReview that role assignments
// need.
type review struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		User               string `json:"user"`
		ResourceAttributes *struct {
			Namespace, Verb, Group, Resource, Subresource string
		} `json:"resourceAttributes,omitempty"`
		NonResourceAttributes *struct {
			Path, Verb string
		} `json:"nonResourceAttributes,omitempty"`
	} `json:"spec"`
	Status struct {
		Allowed bool   `json:"allowed"`
		Reason  string `json:"reason,omitempty"`
	} `json:"status"`
}

// authorizePath precedes the cluster's id in the path of the webhook.
const authorizePath = "/kubernetes/authorize"

// authorizeKubernetes is "Azure RBAC for Kubernetes": an authorization webhook that decides by the
// role assignments on the cluster whose id follows in the path. It allows or has no opinion, so
// that other authorizers may still allow.
func (s *Sim) authorizeKubernetes(w http.ResponseWriter, r *http.Request) {
	var in review
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, "cannot read the review: "+err.Error(), http.StatusBadRequest)
		return
	}
	action := in.dataAction()
	in.Status.Allowed = s.Allowed(in.Spec.User, action, r.URL.Path[len(authorizePath):], true)
	if in.Status.Reason = "no role assignment of Azure allows " + action; in.Status.Allowed {
		in.Status.Reason = "a role assignment of Azure allows " + action
	}
	arm.WriteJSON(w, http.StatusOK, in)
}

// dataAction returns the Azure data action of a Kubernetes request:
//
// Microsoft.ContainerService/managedClusters/{group}/{resource}/{verb}.
func (in review) dataAction() string {
	parts := []string{"Microsoft.ContainerService", "managedClusters"}
	verb := ""
	switch {
	case in.Spec.ResourceAttributes != nil:
		a := in.Spec.ResourceAttributes
		parts = append(parts, a.Group, a.Resource, a.Subresource)
		verb = a.Verb
	case in.Spec.NonResourceAttributes != nil:
		parts = append(parts, strings.Trim(in.Spec.NonResourceAttributes.Path, "/"))
		verb = in.Spec.NonResourceAttributes.Verb
	}
	switch verb {
	case "get", "list", "watch":
		verb = "read"
	case "create", "update", "patch":
		verb = "write"
	case "delete", "deletecollection":
		verb = "delete"
	default:
		verb += "/action"
	}
	parts = slices.DeleteFunc(append(parts, verb), func(s string) bool { return s == "" })
	return strings.Join(parts, "/")
}
