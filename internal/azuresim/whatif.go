package azuresim

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/azuresim/template"
)

// planDeployment reads what a deployment, its validation or its what-if is asked with, and checks
// the template, the parameters and what the caller may do.
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

// invalid refuses a template or its parameters.
func invalid(err error) *arm.Error {
	return arm.Errorf(400, "InvalidTemplate", "Deployment template validation failed: '%s.'.",
		strings.TrimSuffix(err.Error(), "."))
}

// place is where a deployment is, for the template's functions.
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

// mayDeploy refuses what the caller may not write: all of it, before anything is deployed.
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

// putDeployment accepts a deployment, which is then carried out.
func (s *Sim) putDeployment(w http.ResponseWriter, c call) *arm.Error {
	d, _, problem := s.planDeployment(c)
	if problem != nil {
		return problem
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	status := http.StatusCreated
	if before := s.deployed[arm.Key(d.id)]; before != nil {
		if !s.final(before) {
			return active(before)
		}
		status = http.StatusOK
	}
	ctx, cancel := context.WithTimeout(s.life, patience)
	d.began, d.cancel = s.now(), cancel
	s.deployed[arm.Key(d.id)] = d
	r := &rollout{Sim: s, c: c, ctx: ctx, d: d, ended: map[string]error{}}
	s.background.Go(func() { defer cancel(); r.carryOut() })
	w.Header().Set("Azure-AsyncOperation", deploymentURL(c, d.id, "operationStatuses", d.status))
	w.Header().Set("Retry-After", "1")
	arm.WriteJSON(w, status, s.shownDeployment(d))
	return nil
}

// Close stops the deployments that are being carried out, and waits for their end.
func (s *Sim) Close() {
	s.start()
	s.end()
	s.background.Wait()
}

// validate tells whether a template can be deployed.
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

// whatIf tells what a deployment would change, of what the template names.
func (s *Sim) whatIf(w http.ResponseWriter, c call) *arm.Error {
	d, format, problem := s.planDeployment(c)
	if problem != nil {
		return problem
	}
	changes := []any{}
	for _, r := range d.plan.Resources {
		change, err := s.change(c, d.plan, r)
		if err != nil {
			return asError(err)
		}
		if strings.EqualFold(format, "ResourceIdOnly") {
			change = map[string]any{"resourceId": r.ID, "changeType": "Deploy"}
		}
		changes = append(changes, change)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Location", s.later(c, d.id, map[string]any{"status": succeeded,
		"properties": map[string]any{"correlationId": d.correlation, "changes": changes}}))
	w.Header().Set("Retry-After", "0")
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// change is what becomes of one resource.
func (s *Sim) change(c call, plan *template.Plan, r template.Resource) (map[string]any, error) {
	after, err := plan.Preview(r)
	if err != nil {
		return nil, err
	}
	a := s.send(c.Context(), c, http.MethodGet, versioned(r.ID, r.Version), nil)
	own := map[string]any{"apiVersion": r.Version, "id": r.ID, "name": r.Name, "type": r.Type}
	if a.status == http.StatusNotFound {
		maps.Copy(after, own)
		return map[string]any{"resourceId": r.ID, "changeType": "Create", "after": after}, nil
	}
	if err := a.problem(); err != nil {
		return nil, err
	}
	v, err := template.Decode(a.body.Bytes())
	before, ok := v.(map[string]any)
	if err != nil || !ok {
		return nil, arm.Errorf(500, "InvalidResponse", "'%s' cannot be read.", r.ID)
	}
	delta := differ(before, after, "")
	maps.Copy(after, own)
	maps.Copy(before, own)
	change := map[string]any{"resourceId": r.ID, "changeType": "NoChange", "before": before,
		"after": after}
	if len(delta) > 0 {
		change["changeType"], change["delta"] = "Modify", delta
	}
	return change, nil
}

// differ compares what a template names, and is not secret, with what there is. What is empty and
// not there are the same.
func differ(before, after map[string]any, path string) []any {
	var delta []any
	for _, name := range slices.Sorted(maps.Keys(after)) {
		now, then := before[name], after[name]
		was, wasObject := now.(map[string]any)
		is, isObject := then.(map[string]any)
		change := map[string]any{"path": path + name, "after": then}
		switch {
		case wasObject && isObject:
			delta = append(delta, differ(was, is, path+name+".")...)
			continue
		case then == template.Masked, reflect.DeepEqual(now, then), now == nil && nothing(then):
			continue
		case now == nil:
			change["propertyChangeType"] = "Create"
		default:
			change["propertyChangeType"], change["before"] = "Modify", now
		}
		delta = append(delta, change)
	}
	return delta
}

// nothing tells whether a value says nothing.
func nothing(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		for _, member := range v {
			if !nothing(member) {
				return false
			}
		}
		return true
	}
	return false
}
