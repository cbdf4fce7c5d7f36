package azuresim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/azuresim/template"
)

// deployment is a deployment of a template to a resource group.
type deployment struct {
	id, name, mode string
	source         json.RawMessage // the template
	plan           *template.Plan
	state          string
	began, ended   time.Time
	correlation    string
	status         string // id of the operation that clients poll
	operations     []*deploymentOperation
	deployed       []string // ids
	outputs        map[string]any
	failure        *arm.Error
	cancel         context.CancelFunc
}

// The states of a deployment; the last three are final.
const (
	accepted  = "Accepted"
	running   = "Running"
	succeeded = "Succeeded"
	failed    = "Failed"
	canceled  = "Canceled"
)

// deploymentOperation is an operation of a deployment: on one resource, or the evaluation of
// outputs.
type deploymentOperation struct {
	id, kind, state string
	began, ended    time.Time
	resource        template.Resource
	code            int
	failure         *arm.Error
}

// deployments serves Microsoft.Resources/deployments in resource groups.
func (s *Sim) deployments(w http.ResponseWriter, c call) *arm.Error {
	if c.id.ResourceGroup == "" || c.id.Parent != "" {
		return arm.Errorf(400, "InvalidTemplate",
			"The simulated Azure deploys templates to resource groups only.")
	}
	if c.id.Name() == "" && c.Method != http.MethodGet {
		return notAllowed(w, c, "GET")
	}
	switch c.Method {
	case http.MethodPut:
		return s.putDeployment(w, c)
	case http.MethodPost:
		switch strings.ToLower(c.id.Action) {
		case "validate":
			return s.validate(w, c)
		case "whatif":
			return s.whatIf(w, c)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.id.Name() == "" && c.Method == http.MethodGet {
		var items []any
		for _, key := range slices.Sorted(maps.Keys(s.deployed)) {
			if arm.Within(key, c.id.Key()) {
				items = append(items, s.shownDeployment(s.deployed[key]))
			}
		}
		arm.WriteJSON(w, 200, list(items))
		return nil
	}
	d := s.deployed[arm.Key(c.scope)]
	switch {
	case d == nil && c.Method == http.MethodHead:
		w.WriteHeader(http.StatusNotFound)
		return nil
	case d == nil && c.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
		return nil
	case d == nil:
		return arm.Errorf(404, "DeploymentNotFound", "Deployment '%s' could not be found.",
			c.id.Name())
	}
	return s.oneDeployment(w, c, d)
}

var deploymentName = regexp.MustCompile(`^[-\w().]{1,64}$`)

// putDeployment accepts a deployment and runs it in the background.
func (s *Sim) putDeployment(w http.ResponseWriter, c call) *arm.Error {
	if !deploymentName.MatchString(c.id.Name()) {
		return arm.Errorf(400, "InvalidDeploymentName", "The deployment name '%s' is not valid: it is "+
			"to be 1 to 64 letters, digits, '-', '_', '(', ')' and '.'.", c.id.Name())
	}
	d, _, problem := s.planDeployment(c)
	if problem != nil {
		return problem
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		return arm.Errorf(503, "ServiceUnavailable", "The simulated Azure is ending.")
	}
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

// oneDeployment serves requests for an existing deployment. The caller holds the lock.
func (s *Sim) oneDeployment(w http.ResponseWriter, c call, d *deployment) *arm.Error {
	final := s.final(d)
	switch {
	case c.Method == http.MethodGet:
		arm.WriteJSON(w, 200, s.shownDeployment(d))
	case c.Method == http.MethodHead:
		w.WriteHeader(http.StatusNoContent)
	case c.Method == http.MethodDelete && !final:
		return active(d)
	case c.Method == http.MethodDelete:
		delete(s.deployed, arm.Key(d.id))
		w.Header().Set("Location", s.later(c, d.id, nil))
		w.WriteHeader(http.StatusAccepted)
	case strings.EqualFold(c.id.Action, "exportTemplate"):
		arm.WriteJSON(w, 200, map[string]any{"template": d.source})
	case strings.EqualFold(c.id.Action, "cancel") && final:
		return arm.Errorf(409, "DeploymentCannotBeCancelled",
			"The deployment '%s' cannot be cancelled because its provisioning state is '%s'.", d.name,
			d.state)
	case strings.EqualFold(c.id.Action, "cancel"):
		d.state, d.ended = canceled, s.now()
		d.cancel()
		w.WriteHeader(http.StatusNoContent)
	default:
		return notAllowed(w, c, "GET, HEAD, PUT, DELETE, POST")
	}
	return nil
}

func active(d *deployment) *arm.Error {
	return arm.Errorf(409, "DeploymentActive", "Unable to edit or replace deployment '%s': previous "+
		"deployment from '%s' is still active. Please see https://aka.ms/arm-deploy for usage "+
		"details.", d.name, d.began.UTC().Format(time.RFC3339))
}

// final reports whether clients see that a deployment has ended: not before the duration of an
// operation has passed, unless it was canceled.
func (s *Sim) final(d *deployment) bool {
	return d.state == canceled || (d.state == succeeded || d.state == failed) &&
		!s.now().Before(d.began.Add(s.operationTime()))
}

func (s *Sim) stateOf(d *deployment) string {
	if s.final(d) || d.state == accepted {
		return d.state
	}
	return running
}

// result is the result of an operation that has ended; a nil value stands for no content.
type result struct {
	token string
	value any
}

// maxResults is the number of results kept; callers fetch them soon.
const maxResults = 100

// later stores the result of an operation and returns its URL.
func (s *Sim) later(c call, id string, value any) string {
	token := uuid.NewString()
	s.results = append(s.results, result{token, value})
	s.results = slices.Delete(s.results, 0, max(0, len(s.results)-maxResults))
	return deploymentURL(c, id, "operationresults", token)
}

func deploymentURL(c call, id, kind, token string) string {
	return fmt.Sprintf("%s%s/%s/%s?api-version=%s", origin(c.Request), id, kind, token,
		c.URL.Query().Get("api-version"))
}

// deploymentResult serves the result of an accepted operation.
func (s *Sim) deploymentResult(w http.ResponseWriter, c call) *arm.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.results, func(r result) bool { return r.token == c.id.Name() })
	switch {
	case at < 0:
		return notFound(c)
	case s.results[at].value == nil:
		w.WriteHeader(http.StatusNoContent)
	default:
		arm.WriteJSON(w, 200, s.results[at].value)
	}
	return nil
}

// deploymentStatus serves Azure-AsyncOperation polls of a deployment.
func (s *Sim) deploymentStatus(w http.ResponseWriter, c call) *arm.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.deployed {
		if d.status != c.id.Name() {
			continue
		}
		answer := map[string]any{"status": s.stateOf(d)}
		if !s.final(d) {
			w.Header().Set("Retry-After", "1")
		} else if d.failure != nil {
			answer["error"] = d.failure
		}
		arm.WriteJSON(w, 200, answer)
		return nil
	}
	return notFound(c)
}

// deploymentOperations serves Microsoft.Resources/deployments/operations.
func (s *Sim) deploymentOperations(w http.ResponseWriter, c call) *arm.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.deployed[arm.Key(c.id.Scope()+"/providers/Microsoft.Resources/deployments/"+c.id.Names[0])]
	if d == nil {
		return arm.Errorf(404, "DeploymentNotFound", "Deployment '%s' could not be found.",
			c.id.Names[0])
	}
	var items []any
	for _, op := range d.operations {
		shown := d.shownOperation(op)
		if len(c.id.Names) == 2 && op.id == c.id.Name() {
			arm.WriteJSON(w, 200, shown)
			return nil
		}
		items = append(items, shown)
	}
	if len(c.id.Names) == 2 {
		return notFound(c)
	}
	arm.WriteJSON(w, 200, list(items))
	return nil
}

func (d *deployment) shownOperation(op *deploymentOperation) map[string]any {
	properties := map[string]any{
		"provisioningOperation": op.kind, "provisioningState": op.state, "trackingId": d.correlation,
		"timestamp": op.ended.UTC().Format(time.RFC3339Nano), "duration": span(op.ended.Sub(op.began)),
	}
	if op.code != 0 {
		properties["statusCode"] = strings.ReplaceAll(http.StatusText(op.code), " ", "")
	}
	if op.failure != nil {
		properties["statusMessage"] = map[string]any{"error": op.failure}
	}
	if r := op.resource; r.ID != "" {
		properties["targetResource"] = map[string]any{"id": r.ID, "resourceType": r.Type,
			"resourceName": r.Name}
	}
	return map[string]any{"id": d.id + "/operations/" + op.id, "operationId": op.id,
		"properties": properties}
}

// span formats a duration in ISO 8601.
func span(d time.Duration) string { return fmt.Sprintf("PT%.7gS", max(0, d).Seconds()) }

// shownDeployment returns a deployment in ARM's form. The caller holds the lock.
func (s *Sim) shownDeployment(d *deployment) map[string]any {
	at := d.began
	if s.final(d) {
		at = d.ended
	}
	properties := d.planned()
	properties["provisioningState"] = s.stateOf(d)
	properties["timestamp"] = at.UTC().Format(time.RFC3339Nano)
	properties["duration"] = span(at.Sub(d.began))
	if s.final(d) {
		if d.failure != nil {
			properties["error"] = d.failure
		}
		if d.outputs != nil {
			properties["outputs"] = d.outputs
		}
		properties["outputResources"] = references(d.deployed)
	}
	return map[string]any{"id": d.id, "name": d.name, "type": "Microsoft.Resources/deployments",
		"properties": properties}
}

func references(ids []string) []any {
	all := []any{}
	for _, id := range ids {
		all = append(all, map[string]any{"id": id})
	}
	return all
}

// planned returns the properties of a deployment that are known before it runs.
func (d *deployment) planned() map[string]any {
	types := map[string][]any{}
	dependencies := []any{}
	named := func(r template.Resource) map[string]any {
		return map[string]any{"id": r.ID, "resourceType": r.Type, "resourceName": r.Name}
	}
	for _, r := range d.plan.Resources {
		namespace, kind, _ := strings.Cut(r.Type, "/")
		known := slices.ContainsFunc(types[namespace], func(v any) bool {
			return v.(map[string]any)["resourceType"] == kind
		})
		if !known {
			types[namespace] = append(types[namespace],
				map[string]any{"resourceType": kind, "locations": []any{nil}})
		}
		on := []any{}
		for _, id := range r.Depends {
			other, _ := d.plan.Named(id)
			on = append(on, named(other))
		}
		if len(on) > 0 {
			dependency := named(r)
			dependency["dependsOn"] = on
			dependencies = append(dependencies, dependency)
		}
	}
	providers := []any{}
	for _, namespace := range slices.Sorted(maps.Keys(types)) {
		providers = append(providers, map[string]any{"namespace": namespace,
			"resourceTypes": types[namespace]})
	}
	return map[string]any{"mode": d.mode, "parameters": d.plan.Parameters,
		"correlationId": d.correlation, "providers": providers, "dependencies": dependencies}
}
