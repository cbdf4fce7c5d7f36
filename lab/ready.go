package lab

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// timeReady runs a command on a machine and returns the seconds from its start until the Node is
// Ready.
func (l *Lab) timeReady(ctx context.Context, m Machine, argv ...string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	client, err := l.AdminClient()
	if err != nil {
		return 0, err
	}
	defer client.CloseIdleConnections()
	began := time.Now()
	failed := make(chan error, 1)
	go func() {
		_, err := l.Output(ctx, m, argv...)
		failed <- err
	}()
	took, err := 0.0, error(nil)
	for took == 0 && err == nil {
		if nodeReady(ctx, client, m.Name) {
			took = time.Since(began).Seconds()
			break
		}
		select {
		case err = <-failed:
			if err == nil {
				failed = nil // it succeeded; the Node follows
			}
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	if failed != nil && err == nil {
		err = <-failed
	}
	return took, err
}

// WaitReady waits until a Node is Ready.
func (l *Lab) WaitReady(ctx context.Context, node string) error {
	client, err := l.AdminClient()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	return until(ctx, 5*time.Minute, "Node "+node, func() error {
		if !nodeReady(ctx, client, node) {
			return errors.New("it is not Ready")
		}
		return nil
	})
}

// AdminClient returns a client of the API server with the administrator's certificate.
func (l *Lab) AdminClient() (*http.Client, error) {
	pair, err := tls.LoadX509KeyPair(l.path("pki", "admin.crt"), l.path("pki", "admin.key"))
	if err != nil {
		return nil, fmt.Errorf("cannot read the PKI: %w", err)
	}
	pool, err := l.trusted()
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool,
		Certificates: []tls.Certificate{pair}}}}, nil
}

func nodeReady(ctx context.Context, client *http.Client, name string) bool {
	node, err := ReadNode(ctx, client, name)
	return err == nil && node.Ready()
}

// Node holds the fields of a Node that the lab uses.
type Node struct {
	Metadata struct {
		Name   string
		Labels map[string]string
	}
	Spec struct {
		Unschedulable bool
	}
	Status struct {
		Conditions []struct{ Type, Status string }
		NodeInfo   struct{ KubeletVersion, ContainerRuntimeVersion string }
	}
}

// Ready reports whether the Node is Ready.
func (n Node) Ready() bool {
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True"
		}
	}
	return false
}

// Runs returns the versions in the Node's status.
func (n Node) Runs() Versions {
	return Versions{
		Kubernetes: strings.TrimPrefix(n.Status.NodeInfo.KubeletVersion, "v"),
		Containerd: strings.TrimPrefix(n.Status.NodeInfo.ContainerRuntimeVersion, "containerd://"),
	}
}

// ReadNode reads a Node with an AdminClient.
func ReadNode(ctx context.Context, client *http.Client, name string) (Node, error) {
	var node Node
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, APIServer+"/api/v1/nodes/"+name,
		nil)
	if err != nil {
		return node, err
	}
	response, err := client.Do(request)
	if err != nil {
		return node, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return node, fmt.Errorf("the API server answers %s for Node %s", response.Status, name)
	}
	return node, json.NewDecoder(response.Body).Decode(&node)
}
