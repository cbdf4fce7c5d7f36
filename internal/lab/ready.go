package lab

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// timeReady runs a command in a machine and returns the seconds from its start until the API server
// says that the Node is Ready.
func (l *Lab) timeReady(ctx context.Context, m Machine, argv ...string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	client, err := l.adminClient()
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
				failed = nil // it has ended well; the Node follows
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

// WaitReady waits until the API server says that a Node is Ready.
func (l *Lab) WaitReady(ctx context.Context, node string) error {
	client, err := l.adminClient()
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

// adminClient speaks to the API server as its administrator.
func (l *Lab) adminClient() (*http.Client, error) {
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
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, APIServer+"/api/v1/nodes/"+name,
		nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
	if json.NewDecoder(response.Body).Decode(&node) != nil {
		return false
	}
	for _, c := range node.Status.Conditions {
		if c.Type == "Ready" && c.Status == "True" {
			return true
		}
	}
	return false
}
