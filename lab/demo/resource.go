package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/lab"
)

// properties are a flexNodeConfig's properties in its owner's request.
type properties = map[string]any

// first returns the node's first properties, with the defaults of az aks flex-node create: it joins
// with a bootstrap token, has no Azure identity, and follows its resource with its machine key.
func (s *story) first() properties {
	return properties{
		"versions":      s.begins.Desired(),
		"nodeConfig":    properties{"labels": properties{"story": "begins"}, "maxPods": 50},
		"upgradePolicy": properties{"readyTimeout": "PT2M"},
	}
}

// create creates the resource and returns its configuration URL. If the cluster responds late, it
// requests the URL again, as az does.
func (s *story) create(ctx context.Context) (url string, err error) {
	made, _, err := s.put(ctx, "?configUrl=true")
	if url = made.Properties.ConfigURL; err != nil || url != "" {
		return url, err
	}
	var listed api.ConfigURL
	err = until(ctx, 3*time.Minute, "the configuration URL", func(
		ctx context.Context) (bool, error) {
		err := s.request(ctx, http.MethodPost, "/listConfigUrl", nil, &listed)
		return listed.ConfigURL != "", err
	})
	return listed.ConfigURL, err
}

// arm sends a request about the node's resource, and returns it.
func (s *story) arm(
	ctx context.Context, method, query string, body any,
) (got api.FlexNodeConfig, err error) {
	err = s.request(ctx, method, query, body, &got)
	return got, err
}

// request sends a request about the node's resource through Resource Manager, and reads the
// response into the given value, unless it is empty or the resource is not found.
func (s *story) request(ctx context.Context, method, query string, body, into any) error {
	path := lab.ClusterID + "/flexNodeConfig/" + s.name + query
	status, text, err := s.Lab.ARM(ctx, method, lab.AzureURL, path, lab.ProviderAPI, body)
	switch {
	case err != nil:
		return err
	case status == http.StatusNotFound && method != http.MethodPut:
		return nil
	case status/100 != 2:
		return fmt.Errorf("%s %s: %d %s", method, path, status, text)
	case text == "" || method == http.MethodDelete:
		return nil
	}
	return json.Unmarshal([]byte(text), into)
}

// put writes the owner's properties and returns the time of the response.
func (s *story) put(ctx context.Context, query string) (api.FlexNodeConfig, time.Time, error) {
	got, err := s.arm(ctx, http.MethodPut, query, properties{"properties": s.wants})
	return got, time.Now(), err
}

// applied waits until the node has reported the current revision as applied.
func (s *story) applied(ctx context.Context) error {
	return until(ctx, 3*time.Minute, "the report that the revision is applied",
		func(ctx context.Context) (bool, error) {
			shown, err := s.arm(ctx, http.MethodGet, "", nil)
			if err != nil || shown.Properties.Status == nil {
				return false, err
			}
			config := shown.Properties.Status.Config
			if config != nil && config.Failed != nil {
				err = errors.New("it has failed: " + config.Failed.Message)
			}
			is := shown.Properties.Status.AppliedConfigVersion
			return is != "" && is == shown.Properties.ConfigVersion, err
		})
}

// node reads the Node.
func (s *story) node(ctx context.Context) (lab.Node, error) {
	return lab.ReadNode(ctx, s.api, s.name)
}

// runs waits until the Node runs the versions and is Ready and schedulable.
func (s *story) runs(ctx context.Context, v lab.Versions) error {
	return until(ctx, 5*time.Minute, "a Node that runs "+v.Kubernetes, func(
		ctx context.Context) (bool, error) {
		n, err := s.node(ctx)
		if err == nil && n.Runs() != v {
			err = fmt.Errorf("it runs %+v", n.Runs())
		}
		return err == nil && n.Ready() && !n.Spec.Unschedulable, err
	})
}
