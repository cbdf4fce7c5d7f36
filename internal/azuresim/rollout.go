package azuresim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/azuresim/template"
)

const (
	// patience is the timeout of a deployment.
	patience = 2 * time.Hour
	// again is the max number of retries while a provider is busy.
	again = 5
)

// rollout runs a deployment on behalf of the caller who requested it, with the caller's
// permissions. It is the template's Runtime.
type rollout struct {
	*Sim
	c     call
	ctx   context.Context // of the deployment, which outlives the request
	d     *deployment
	ended map[string]error // by key of the resource's id; nil if deployed
	under []string         // keys of the resources being deployed
}

// errSkipped is the result of a resource that depends on a failed one.
var errSkipped = errors.New("a resource that it depends on has failed")

// carryOut deploys the resources and evaluates the outputs.
func (r *rollout) carryOut() {
	r.update(func() { r.d.state = running })
	var failures []arm.Error
	for _, resource := range r.d.plan.Resources {
		if err := r.deploy(resource); err != nil && !errors.Is(err, errSkipped) {
			failures = append(failures, *asError(err))
		}
	}
	if err := r.over(); err != nil && len(failures) == 0 {
		failures = append(failures, *err)
	}
	var outputs map[string]any
	var failure *arm.Error
	if len(failures) > 0 {
		failure = arm.Errorf(0, "DeploymentFailed", "At least one resource deployment operation "+
			"failed. Please list deployment operations for details. Please see "+
			"https://aka.ms/arm-deployment-operations for usage details.")
		failure.Target, failure.Details = r.d.id, failures
	} else {
		outputs, failure = r.outputs()
	}
	r.update(func() {
		if r.d.state == canceled {
			return
		}
		r.d.state, r.d.ended = succeeded, r.now()
		r.d.outputs, r.d.failure = outputs, failure
		if failure != nil {
			r.d.state = failed
		}
	})
}

// over returns the error if the deployment was canceled or has timed out.
func (r *rollout) over() *arm.Error {
	switch err := r.ctx.Err(); {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return arm.Errorf(http.StatusConflict, "DeploymentTimedOut",
			"The deployment '%s' has not ended in %s.", r.d.name, patience)
	}
	return arm.Errorf(http.StatusConflict, "DeploymentCanceled", "The deployment '%s' was canceled.",
		r.d.name)
}

func (r *rollout) update(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// note records an operation of the deployment; the returned function records its end.
func (r *rollout) note(kind string, resource template.Resource) func(status int, err error) {
	now := r.now()
	op := &deploymentOperation{id: strings.ToUpper(strings.ReplaceAll(uuid.NewString(), "-", ""))[:16],
		kind: kind, state: running, began: now, ended: now, resource: resource}
	r.update(func() { r.d.operations = append(r.d.operations, op) })
	return func(status int, err error) {
		r.update(func() {
			op.state, op.ended, op.code = succeeded, r.now(), status
			if err != nil {
				op.state, op.failure = failed, asError(err)
				op.code = first(op.failure.Status, status)
				if r.ctx.Err() != nil {
					op.state = canceled
				}
			}
		})
	}
}

// deploy deploys a resource after its dependencies, once.
func (r *rollout) deploy(resource template.Resource) error {
	key := arm.Key(resource.ID)
	if err, ok := r.ended[key]; ok {
		if err != nil {
			return errSkipped // the failure is reported once
		}
		return nil
	}
	if r.over() != nil {
		return errSkipped
	}
	if slices.Contains(r.under, key) {
		return template.Problem("Circular dependency detected on resource: '" + resource.ID + "'.")
	}
	r.under = append(r.under, key)
	defer func() { r.under = r.under[:len(r.under)-1] }()
	var err error
	for _, id := range resource.Depends {
		on, _ := r.d.plan.Named(id)
		if r.deploy(on) != nil {
			err = errSkipped
		}
	}
	if err == nil {
		err = r.put(resource)
	}
	r.ended[key] = err
	return err
}

// put creates a resource through its provider and waits until it is provisioned.
func (r *rollout) put(resource template.Resource) error {
	end := r.note("Create", resource)
	body, err := r.d.plan.Body(resource, r)
	if err != nil {
		end(http.StatusBadRequest, err)
		return err
	}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	uri := versioned(resource.ID, resource.Version)
	a, err := r.ask(http.MethodPut, uri, text)
	if err == nil {
		err = r.settle(a, uri)
	}
	end(a.status, err)
	if err == nil {
		r.update(func() { r.d.deployed = append(r.d.deployed, resource.ID) })
	}
	return err
}

func versioned(id, version string) string {
	return (&url.URL{Path: id, RawQuery: url.Values{"api-version": {version}}.Encode()}).String()
}

// settle waits for an operation to end (RPC, "Asynchronous operations").
func (r *rollout) settle(a *answer, uri string) error {
	next, operation := uri, false
	for {
		var seen struct {
			Status     string     `json:"status"`
			Error      *arm.Error `json:"error"`
			Properties struct {
				ProvisioningState string `json:"provisioningState"`
			} `json:"properties"`
		}
		text := bytes.TrimSpace(a.body.Bytes()) // a 202 may have no body
		if err := json.Unmarshal(text, &seen); err != nil && len(text) > 0 {
			return arm.Errorf(http.StatusBadGateway, "InvalidResponse",
				"The resource provider has answered %d with what is no JSON.", a.status)
		}
		state := seen.Properties.ProvisioningState
		if operation {
			state = seen.Status
		}
		if url := a.header.Get("Azure-AsyncOperation"); url != "" && !operation {
			next, operation, state = url, true, running
		} else if a.status == http.StatusAccepted {
			next, state = first(a.header.Get("Location"), next), running
		}
		switch strings.ToLower(state) {
		case "", "succeeded":
			return nil
		case "failed", "canceled":
			if seen.Error != nil {
				return seen.Error
			}
			return arm.Errorf(http.StatusConflict, "ResourceDeploymentFailure",
				"The resource operation completed with terminal provisioning state '%s'.", state)
		}
		if err := r.wait(a); err != nil {
			return err
		}
		var err error
		if a, err = r.ask(http.MethodGet, next, nil); err != nil {
			return err
		}
	}
}

// once sends a request to a provider. A POST is not retried: it may have had its effect without a
// response.
func (r *rollout) once(method, uri string, body []byte) (*answer, error) {
	if method != http.MethodPost {
		return r.ask(method, uri, body)
	}
	a := r.send(r.ctx, r.c, method, uri, body)
	return a, a.problem()
}

// ask sends a request to a provider and retries while it is busy.
func (r *rollout) ask(method, uri string, body []byte) (*answer, error) {
	for asked := 0; ; asked++ {
		a := r.send(r.ctx, r.c, method, uri, body)
		if err := r.over(); err != nil {
			return a, err
		}
		if !a.isBusy() || asked == again {
			return a, a.problem()
		}
		if err := r.wait(a); err != nil {
			return a, err
		}
	}
}

// wait waits for the time in Retry-After, max a minute, or a second without one.
func (r *rollout) wait(a *answer) error {
	seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
	if err != nil {
		seconds = 1
	}
	pause := max(50*time.Millisecond, time.Duration(min(seconds, 60))*time.Second)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-r.ctx.Done():
		return r.over()
	}
}

// outputs evaluates the template's outputs.
func (r *rollout) outputs() (map[string]any, *arm.Error) {
	end := r.note("EvaluateDeploymentOutput", template.Resource{})
	outputs, err := r.d.plan.Outputs(r)
	if err == nil {
		end(http.StatusOK, nil)
		return outputs, nil
	}
	var which template.OutputError
	errors.As(err, &which)
	const code = "DeploymentOutputEvaluationFailed"
	detail := *asError(err)
	detail.Target = which.Name
	if problem := template.Problem(""); errors.As(err, &problem) {
		detail.Code = code
		detail.Message = "The template output '" + which.Name + "' is not valid: " + string(problem) + "."
	}
	failure := arm.Errorf(0, code, "Unable to evaluate template outputs: '%s'. Please see error "+
		"details and deployment operations. Please see https://aka.ms/arm-common-errors for usage "+
		"details.", which.Name)
	failure.Details = []arm.Error{detail}
	end(http.StatusBadRequest, &detail)
	return nil, failure
}

// Reference implements the template function reference. It deploys a resource of the template
// first.
func (r *rollout) Reference(id, version string, full bool) (any, error) {
	resource, ours := r.d.plan.Named(id)
	if ours {
		if err := r.deploy(resource); err != nil {
			return nil, err
		}
		id, version = resource.ID, first(version, resource.Version)
	}
	whole, err := r.read(http.MethodGet, id, version, nil)
	if err != nil || full {
		return whole, err
	}
	object, _ := whole.(map[string]any)
	return object["properties"], nil
}

// List implements the template's list* functions.
func (r *rollout) List(action, id, version string, body any) (any, error) {
	if resource, ours := r.d.plan.Named(id); ours {
		if err := r.deploy(resource); err != nil {
			return nil, err
		}
		id = resource.ID
	}
	return r.read(http.MethodPost, id+"/"+action, version, body)
}

// read sends a request about a resource; it does not wait for a long-running operation.
func (r *rollout) read(method, id, version string, body any) (any, error) {
	if !strings.HasPrefix(id, "/") {
		return nil, template.Problem("The resource '" + id + "' is not defined in the template. " +
			"Please see https://aka.ms/arm-template for usage details")
	}
	if version == "" {
		return nil, template.Problem("The api-version of '" + id + "' is not given")
	}
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	a, err := r.once(method, versioned(id, version), text)
	if err != nil {
		return nil, err
	}
	if a.status == http.StatusAccepted {
		return nil, template.Problem("'" + id + "' does not answer at once: it goes on with the " +
			"operation, and a template does not wait for it")
	}
	return template.Decode(a.body.Bytes())
}

// asError converts an error to Resource Manager's form.
func asError(err error) *arm.Error {
	var known *arm.Error
	if errors.As(err, &known) {
		return known
	}
	return arm.Errorf(http.StatusBadRequest, "InvalidTemplate", "%s.", err)
}
