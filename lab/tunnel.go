package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/Azure/AKSFlexNode/lab/component"
	"github.com/Azure/AKSFlexNode/lab/images"
)

// tunnelAgentPort is the port of the tunnel's server for agents; the API server uses a socket.
const (
	tunnelAgentPort = "8132"
	tunnelImage     = "kas-network-proxy/proxy-agent:v0.34.0"
)

// egress makes the API server reach nodes, pods and Services through the tunnel. Source:
// EgressSelectorConfiguration of apiserver.k8s.io/v1beta1.
const egress = `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection: {proxyProtocol: GRPC, transport: {uds: {udsName: %q}}}
`

// tunnelManifest runs an agent on every node. Each identifies itself with the node's address, so
// that the server uses a node's own agent for that node, and any agent for other addresses.
const tunnelManifest = `apiVersion: v1
kind: ServiceAccount
metadata: {name: konnectivity-agent, namespace: kube-system}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: konnectivity-agent, namespace: kube-system}
spec:
  selector: {matchLabels: {k8s-app: konnectivity-agent}}
  template:
    metadata: {labels: {k8s-app: konnectivity-agent}}
    spec:
      hostNetwork: true
      priorityClassName: system-node-critical
      serviceAccountName: konnectivity-agent
      tolerations: [{operator: Exists}]
      containers:
      - name: agent
        image: registry.k8s.io/` + tunnelImage + `
        args:
        - --proxy-server-host=` + HostIP + `
        - --proxy-server-port=` + tunnelAgentPort + `
        - --ca-cert=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt
        - --service-account-token-path=/var/run/secrets/tokens/token
        - --agent-identifiers=ipv4=$(HOST_IP)
        - --health-server-host=127.0.0.1
        - --admin-bind-address=127.0.0.1
        env: [{name: HOST_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}]
        readinessProbe:
          httpGet: {host: 127.0.0.1, port: 8093, path: /readyz}
          periodSeconds: 1
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        volumeMounts: [{name: token, mountPath: /var/run/secrets/tokens}]
      volumes:
      - name: token
        projected:
          sources:
          - serviceAccountToken: {path: token, audience: system:konnectivity-server}
`

func (l *Lab) egressFile() string { return l.path("egress.yaml") }

// HasTunnel reports whether the API server reaches nodes through a tunnel.
func (l *Lab) HasTunnel() bool {
	_, err := os.Stat(l.egressFile())
	return err == nil
}

// tunnelFlags returns the API server's flags for the tunnel.
func (l *Lab) tunnelFlags() []string {
	if !l.HasTunnel() {
		return nil
	}
	return []string{"--egress-selector-config-file=" + l.egressFile()}
}

// StartTunnel makes the lab's API server reach nodes through connections that they open:
// konnectivity, with an agent on every node. It restarts the API server.
func (l *Lab) StartTunnel(ctx context.Context) error {
	programs, err := l.Component(ctx, component.NetworkProxy)
	if err != nil {
		return err
	}
	image := images.Image{
		Names: []string{tunnelImage}, Program: filepath.Join(programs, "proxy-agent"),
		Path: "proxy-agent", User: "65535:65535",
	}
	if err := image.Push(ctx, ControlURL); err != nil {
		return err
	}
	socket := l.path("konnectivity.sock")
	text := fmt.Sprintf(egress, socket)
	if err := os.WriteFile(l.egressFile(), []byte(text), 0o600); err != nil {
		return fmt.Errorf("cannot configure the tunnel: %w", err)
	}
	if err := l.background("konnectivity-server", filepath.Join(programs, "proxy-server"),
		"--mode=grpc", "--uds-name="+socket, "--server-port=0",
		"--agent-bind-address="+HostIP, "--agent-port="+tunnelAgentPort,
		"--admin-bind-address=127.0.0.1", "--admin-port=8133",
		"--health-bind-address=127.0.0.1", "--health-port=8134",
		"--cluster-cert="+l.path("pki", "apiserver.crt"),
		"--cluster-key="+l.path("pki", "apiserver.key"), "--kubeconfig="+l.Kubeconfig(),
		"--agent-namespace=kube-system", "--agent-service-account=konnectivity-agent",
		"--authentication-audience=system:konnectivity-server",
		"--proxy-strategies=destHost,default"); err != nil {
		return err
	}
	if _, err := l.apply(ctx, tunnelManifest); err != nil {
		return err
	}
	if _, err := l.Kubectl(ctx, "", "rollout", "status", "--namespace=kube-system",
		"--timeout=2m", "daemonset/konnectivity-agent"); err != nil {
		return err
	}
	if p, up := l.running("kube-apiserver"); up && p.hasArgument(l.tunnelFlags()[0]) {
		return nil
	}
	return l.restartAPIServer(ctx)
}

// StopTunnel makes the API server connect to nodes directly again.
func (l *Lab) StopTunnel(ctx context.Context) error {
	if !l.HasTunnel() {
		return nil
	}
	if err := os.Remove(l.egressFile()); err != nil {
		return fmt.Errorf("cannot configure the tunnel: %w", err)
	}
	if err := l.restartAPIServer(ctx); err != nil {
		return err
	}
	if p, ok := l.running("konnectivity-server"); ok {
		if err := p.stop(); err != nil {
			return err
		}
	}
	_, err := l.Kubectl(ctx, tunnelManifest, "delete", "--ignore-not-found", "-f", "-")
	return err
}

func (l *Lab) restartAPIServer(ctx context.Context) error {
	if err := l.StopAPIServer(); err != nil {
		return err
	}
	return l.StartAPIServer(ctx)
}
