package azuresim

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/azuresim/template"
)

// planDeployment parses the body of a deployment, validation or what-if, and checks the template,
// the parameters and the caller's permissions. It also returns the result format of a what-if.
func (s *Sim) planDeployment(c call) (*deployment, string, *arm.Error) {
	var body struct {
		Properties struct {
			Template, Parameters, TemplateLink, ParametersLink, OnErrorDeployment json.RawMessage

			Mode           string
			WhatIfSettings struct{ ResultFormat string }
		}
	}
	text, err := template.JSON(c.body)
	if err == nil {
		err = json.Unmarshal(text, &body)
	}
	p := body.Properties
	if err != nil {
		return nil, "", arm.Errorf(400, "InvalidRequestContent",
			"The request content was invalid and could not be deserialized: '%v'.", err)
	}
	for name, given := range map[string]json.RawMessage{"templateLink": p.TemplateLink,
		"parametersLink": p.ParametersLink, "onErrorDeployment": p.OnErrorDeployment} {
		if len(given) > 0 && string(given) != "null" {
			return nil, "", invalid(template.Problem("'" + name + "' is not simulated"))
		}
	}
	if !strings.EqualFold(first(p.Mode, "Incremental"), "Incremental") {
		return nil, "", invalid(template.Problem("The mode '" + p.Mode + "' is not simulated, only " +
			"'Incremental'"))
	}
	d := &deployment{name: c.id.Name(), mode: "Incremental", source: p.Template, state: accepted,
		correlation: uuid.NewString(), status: uuid.NewString()}
	place := s.place(c, d)
	d.id = place.ResourceGroup["id"].(string) + "/providers/Microsoft.Resources/deployments/" + d.name
	read, err := template.Read(p.Template)
	if err == nil {
		d.plan, err = read.Bind(p.Parameters, place)
	}
	if err == nil {
		err = d.plan.Check()
	}
	if err != nil {
		return nil, "", invalid(err)
	}
	return d, p.WhatIfSettings.ResultFormat, s.mayDeploy(c, d)
}

// invalid returns the error for an invalid template or its parameters.
func invalid(err error) *arm.Error {
	return arm.Errorf(400, "InvalidTemplate", "Deployment template validation failed: '%s.'.",
		strings.TrimSuffix(err.Error(), "."))
}

// place returns the scope of a deployment for the template's functions.
func (s *Sim) place(c call, d *deployment) template.Place {
	s.mu.Lock()
	defer s.mu.Unlock()
	place := template.Place{Deployment: map[string]any{"name": d.name,
		"properties": map[string]any{"mode": d.mode, "provisioningState": accepted}}}
	for _, sub := range s.world.Subscriptions {
		if strings.EqualFold(sub.ID, c.id.Subscription) {
			place.Subscription = s.subscription(sub)
		}
	}
	for _, id := range s.world.ResourceGroups {
		if arm.Key(id) == arm.Key("/subscriptions/"+c.id.Subscription+"/resourceGroups/"+
			c.id.ResourceGroup) {
			place.ResourceGroup = resourceGroup(id)
		}
	}
	return place
}

// mayDeploy returns an error that lists each resource the caller may not write, before anything is
// deployed.
func (s *Sim) mayDeploy(c call, d *deployment) *arm.Error {
	var refused []string
	for _, r := range d.plan.Resources {
		n, err := inner(c.Context(), c, http.MethodPut, versioned(r.ID, r.Version), nil)
		if err != nil {
			return arm.Errorf(400, "InvalidTemplate", "The resource id '%s' is not valid.", r.ID)
		}
		if s.Allowed(c.caller.OID, n.action, n.scope, false) {
			continue
		}
		refused = append(refused, "Authorization failed for template resource '"+r.Name+"' of type '"+
			r.Type+"'. The client '"+first(c.caller.UPN, c.caller.AppID)+"' with object id '"+
			c.caller.OID+"' does not have permission to perform action '"+n.action+"' at scope '"+
			n.scope+"'.")
	}
	switch len(refused) {
	case 0:
		return nil
	case 1:
		return arm.Errorf(400, "InvalidTemplateDeployment",
			"The template deployment failed with error: '%s'.", refused[0])
	}
	return arm.Errorf(400, "InvalidTemplateDeployment",
		"Deployment failed with multiple errors: '%s'", strings.Join(refused, ":"))
}

// validate responds with the planned deployment, or with an error if it cannot be deployed.
func (s *Sim) validate(w http.ResponseWriter, c call) *arm.Error {
	d, _, problem := s.planDeployment(c)
	if problem != nil {
		return problem
	}
	var ids []string
	for _, r := range d.plan.Resources {
		ids = append(ids, r.ID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d.began = s.now()
	shown := s.shownDeployment(d)
	properties := shown["properties"].(map[string]any)
	properties["provisioningState"], properties["validatedResources"] = succeeded, references(ids)
	arm.WriteJSON(w, 200, shown)
	return nil
}
