package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
)

// ServerVersion returns the API server's version without "v" and a vendor's suffix, "1.34.4".
func (c *Client) ServerVersion(ctx context.Context) (string, error) {
	body, err := c.core.Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("cannot ask the API server for its version: %w", err)
	}
	var version struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(body, &version); err != nil {
		return "", fmt.Errorf("cannot read the API server's version: %w", err)
	}
	m := regexp.MustCompile(`\Av?(\d+\.\d+\.\d+)`).FindStringSubmatch(version.GitVersion)
	if m == nil {
		return "", fmt.Errorf("cannot read the API server's version: %.40q", version.GitVersion)
	}
	return m[1], nil
}

// ClusterUID returns what tells this cluster from all others: the uid of the Service
// default/kubernetes, which the API server makes once.
func (c *Client) ClusterUID(ctx context.Context) (string, error) {
	s, err := c.Service(ctx, "default", "kubernetes")
	return string(s.UID), err
}
