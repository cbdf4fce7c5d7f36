package demo

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/lab/images"
)

// watch polls kubelet's health continuously.
type watch struct {
	client  *http.Client
	url     string
	end     context.CancelFunc
	ended   chan struct{}
	longest time.Duration // set when it ends
}

// watchKubelet starts a watch. It connects as the cluster's administrator and does not verify
// kubelet's self-signed certificate.
func (s *story) watchKubelet(ctx context.Context) error {
	client, err := s.Lab.AdminClient()
	if err != nil {
		return err
	}
	transport := client.Transport.(*http.Transport)
	transport.TLSClientConfig = transport.TLSClientConfig.Clone()
	transport.TLSClientConfig.InsecureSkipVerify = true // on the lab's own bridge
	transport.TLSClientConfig.MinVersion = tls.VersionTLS12
	client.Timeout = time.Second
	ctx, end := context.WithCancel(ctx)
	w := &watch{
		client: client, url: "https://" + s.m.IP + ":10250/healthz", end: end,
		ended: make(chan struct{}),
	}
	s.kubelet = w
	go w.run(ctx)
	return nil
}

// run measures the longest time between healthy responses.
func (w *watch) run(ctx context.Context) {
	defer close(w.ended)
	defer w.client.CloseIdleConnections()
	last := time.Now()
	for ctx.Err() == nil {
		if w.healthy(ctx) {
			w.longest, last = max(w.longest, time.Since(last)), time.Now()
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	w.longest = max(w.longest, time.Since(last)) // it may have stopped responding, or never responded
}

// healthy reports whether kubelet is healthy.
func (w *watch) healthy(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url, nil)
	if err != nil {
		return false
	}
	response, err := w.client.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return err == nil && response.StatusCode == http.StatusOK && string(text) == "ok"
}

// stop ends the watch and returns the longest time without a healthy response, in seconds.
func (w *watch) stop() float64 {
	w.end()
	<-w.ended
	return w.longest.Seconds()
}

// containers returns the node's containers with their restart counts.
func (s *story) containers(ctx context.Context) ([]string, error) {
	out, err := s.Lab.Kubectl(ctx, "", "get", "pods", "-A", "--field-selector=spec.nodeName="+s.name,
		"-o", `jsonpath={range .items[*]}{range .status.containerStatuses[*]}`+
			`{.containerID} {.restartCount}{"\n"}{end}{end}`)
	return strings.Split(strings.TrimSpace(out), "\n"), err
}

// polls waits until the provider holds a poll of each node of the demo.
func (s *story) polls(ctx context.Context) error {
	return until(ctx, 2*time.Minute, "the node's long poll", func(ctx context.Context) (bool, error) {
		waiting, err := s.Lab.WaitingPolls(ctx)
		return waiting >= 2, err
	})
}

const deployment = "demo-web"

// deploy creates a Deployment of two pods on the node.
func (s *story) deploy(ctx context.Context) error {
	manifest := fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: 2
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      nodeSelector: {kubernetes.io/hostname: %[2]s}
      terminationGracePeriodSeconds: 1
      containers: [{name: hello, image: "%[3]s"}]
`, deployment, s.name, images.Hello)
	if _, err := s.Lab.Kubectl(ctx, manifest, "apply", "-f", "-"); err != nil {
		return err
	}
	return s.deployed(ctx)
}

// deployed waits until all pods of the Deployment are available.
func (s *story) deployed(ctx context.Context) error {
	_, err := s.Lab.Kubectl(ctx, "", "rollout", "status", "deployment/"+deployment, "--timeout=120s")
	return err
}
