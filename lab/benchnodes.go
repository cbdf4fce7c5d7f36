package lab

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// benchNodes is the max number of the agents' Nodes in the cluster.
	benchNodes = 10_000
	nodeMakers = 24
	nodesWait  = 5 * time.Minute
)

// benchNodeObject returns a Node as a kubelet registers it: Ready, with images.
func benchNodeObject(n int) ([]byte, error) {
	name := fmt.Sprintf("bench-%06d", n)
	now := time.Now().UTC().Format(time.RFC3339)
	condition := func(kind, status, reason string) object {
		return object{"type": kind, "status": status, "reason": reason, "message": reason,
			"lastHeartbeatTime": now, "lastTransitionTime": now}
	}
	var images []object
	for i := range 25 {
		images = append(images, object{"sizeBytes": 50_000_000 + i, "names": []string{
			fmt.Sprintf("registry.example/team-%02d/service@sha256:%064x", i, i),
			fmt.Sprintf("registry.example/team-%02d/service:1.%d.0", i, i)}})
	}
	resources := object{"cpu": "4", "memory": "16Gi", "pods": "110", "ephemeral-storage": "100Gi"}
	text, err := json.Marshal(object{
		"apiVersion": "v1", "kind": "Node",
		"metadata": object{"name": name, "labels": object{
			"kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
			"kubernetes.io/arch": "amd64", "kubernetes.azure.com/managed": "false"}},
		"status": object{
			"capacity": resources, "allocatable": resources, "images": images,
			"addresses": []object{{"type": "InternalIP", "address": "192.0.2.1"},
				{"type": "Hostname", "address": name}},
			"conditions": []object{
				condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
				condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
				condition("PIDPressure", "False", "KubeletHasSufficientPID"),
				condition("Ready", "True", "KubeletReady")},
			"nodeInfo": object{"machineID": name, "systemUUID": name, "bootID": name,
				"kernelVersion": "6.8.0-60-generic", "osImage": "Ubuntu 24.04.2 LTS",
				"containerRuntimeVersion": "containerd://2.3.4", "kubeletVersion": "v1.36.3",
				"kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64"},
		}})
	if err != nil {
		return nil, fmt.Errorf("internal error: %w", err)
	}
	return text, nil
}

// Nodes adds Nodes of the first agents to the cluster, waits until the provider has seen them, and
// returns their number. It pauses the controller that would notice the missing kubelets; resume
// continues it.
func (b *ProviderBench) Nodes(ctx context.Context) (nodes int, resume func() error, err error) {
	const controller = "kube-controller-manager"
	if err := b.lab.signal(controller, syscall.SIGSTOP); err != nil {
		return 0, nil, err
	}
	resume = func() error { return b.lab.signal(controller, syscall.SIGCONT) }
	nodes = min(benchNodes, b.stored)
	if err := b.makeNodes(ctx, nodes); err != nil {
		return 0, nil, errors.Join(err, resume())
	}
	err = until(ctx, nodesWait, "the provider to see the Nodes", func() error {
		text, err := fetch(ctx, ProviderMetrics(0)+"/metrics")
		if err != nil {
			return err
		}
		if n := metric(text, "flexnode_rp_nodes", `ready="True"`); int(n) < nodes {
			return fmt.Errorf("%.0f of %d", n, nodes)
		}
		return nil
	})
	if err != nil {
		return 0, nil, errors.Join(err, resume())
	}
	return nodes, resume, nil
}

func (b *ProviderBench) makeNodes(ctx context.Context, nodes int) error {
	client, err := b.lab.administrator()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	var next atomic.Int64
	errs := make([]error, nodeMakers)
	var making sync.WaitGroup
	for w := range errs {
		making.Go(func() {
			for errs[w] == nil {
				n := int(next.Add(1)) - 1
				if n >= nodes {
					return
				}
				errs[w] = makeNode(ctx, client, n)
			}
		})
	}
	making.Wait()
	return errors.Join(errs...)
}

func makeNode(ctx context.Context, client *http.Client, n int) error {
	body, err := benchNodeObject(n)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, APIServer+"/api/v1/nodes",
		bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode/100 != 2 && response.StatusCode != http.StatusConflict {
		err = fmt.Errorf("cannot make a Node: %s: %.300s", response.Status, text)
	}
	return err
}

// administrator returns a client of the API server with all rights.
func (l *Lab) administrator() (*http.Client, error) {
	pair, err := tls.LoadX509KeyPair(l.path("pki", "admin.crt"), l.path("pki", "admin.key"))
	if err != nil {
		return nil, fmt.Errorf("cannot read the administrator's certificate: %w", err)
	}
	ca, err := l.ClusterCA()
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		MaxIdleConnsPerHost: nodeMakers, TLSClientConfig: &tls.Config{
			RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	}}, nil
}
