package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/lab/images"
)

// RunPod runs the workload image on a node, with the pod's name as the label app, and returns the
// pod's address once it is Running.
func (l *Lab) RunPod(ctx context.Context, name, node string) (string, error) {
	manifest := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s, labels: {app: %[1]s}}
spec:
  nodeName: %[2]s
  terminationGracePeriodSeconds: 1
  containers: [{name: hello, image: "%[3]s", resources: {requests: {cpu: 100m}}}]
`, name, node, images.Hello)
	return l.StartPod(ctx, name, manifest)
}

// StartPod applies the manifest of a pod and returns the pod's address once it is Running.
func (l *Lab) StartPod(ctx context.Context, name, manifest string) (string, error) {
	if _, err := l.apply(ctx, manifest); err != nil {
		return "", err
	}
	// one kubectl that waits, instead of polls
	if _, err := l.Kubectl(ctx, "", "wait", "--for=jsonpath={.status.phase}=Running",
		"--timeout=3m", "pod/"+name); err != nil {
		return "", err
	}
	ip := ""
	err := until(ctx, time.Minute, "the address of pod "+name, func() error {
		out, err := l.Kubectl(ctx, "", "get", "pod", name, "-o",
			"jsonpath={.status.phase} {.status.podIP}")
		fields := strings.Fields(out)
		if len(fields) != 2 || fields[0] != "Running" {
			return errors.Join(err, fmt.Errorf("it is %q", out))
		}
		ip = fields[1]
		return nil
	})
	return ip, err
}

// PodIPs returns the addresses of a Running pod, one of each family that its node has.
func (l *Lab) PodIPs(ctx context.Context, name string) ([]string, error) {
	out, err := l.Kubectl(ctx, "", "get", "pod", name, "-o", "jsonpath={.status.podIPs[*].ip}")
	return strings.Fields(out), err
}

// CheckPod runs a pod, checks that `kubectl logs` and `kubectl exec` work with it, and returns its
// address.
func (l *Lab) CheckPod(ctx context.Context, name, node string) (string, error) {
	ip, err := l.RunPod(ctx, name, node)
	if err != nil {
		return "", err
	}
	// it may be Running before its first output
	err = until(ctx, time.Minute, "the logs of pod "+name, func() error {
		logs, err := l.Kubectl(ctx, "", "logs", name)
		if err == nil && strings.TrimSpace(logs) == "" {
			err = errors.New("they are empty")
		}
		return err
	})
	if err != nil {
		return ip, err
	}
	host, err := l.Kubectl(ctx, "", "exec", name, "--", "/hello", "hostname")
	if err != nil || strings.TrimSpace(host) != name {
		return ip, errors.Join(err, fmt.Errorf("cannot run a command in pod %s: it said %q", name, host))
	}
	return ip, nil
}

// Fetch fetches a URL in a pod and returns the body. It retries, because a machine that has just
// joined is reachable only after watchRoutes has set its routes.
func (l *Lab) Fetch(ctx context.Context, pod, url string) (string, error) {
	got := ""
	err := until(ctx, time.Minute, "an answer to pod "+pod+" from "+url, func() (err error) {
		got, err = l.Kubectl(ctx, "", "exec", pod, "--", "/hello", "client", url)
		return err
	})
	return got, err
}
