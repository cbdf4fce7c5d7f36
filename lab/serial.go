package lab

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:embed serial.sh
var serialScript string

// filesDir is the directory of the plain script's files on a machine.
const filesDir = "/root/files"

// serialFiles copies the files that ours has written on a machine, for the plain script.
func (l *Lab) serialFiles(m Machine) error {
	dir := l.path("serial")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot keep the files: %w", err)
	}
	for name, path := range map[string]string{
		"modules.conf":       "/etc/modules-load.d/aks-flex-node.conf",
		"sysctl.conf":        "/etc/sysctl.d/999-aks-flex-node.conf",
		"config.toml":        "/etc/containerd/config.toml",
		"containerd.service": "/etc/systemd/system/containerd.service",
		"ca.crt":             "/etc/kubernetes/certs/ca.crt",
		"kubelet.yaml":       "/var/lib/kubelet/config.yaml",
		"kubelet.service":    "/etc/systemd/system/kubelet.service",
		"registration.env":   "/etc/kubernetes/aks-flex-node-registration.env",
		"conflist":           "/etc/cni/net.d/99-aks-flex-node.conflist",

		"node-problem-detector.service": "/etc/systemd/system/node-problem-detector.service",
	} {
		data, err := os.ReadFile(filepath.Join(m.Root, path))
		if err != nil {
			return fmt.Errorf("cannot keep the files: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return fmt.Errorf("cannot keep the files: %w", err)
		}
	}
	return nil
}

// bootstrapKubeconfig returns a kubeconfig with a new token.
func (l *Lab) bootstrapKubeconfig(ctx context.Context) (string, error) {
	token, err := l.Token(ctx)
	return fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q, "+
		"certificate-authority: /etc/kubernetes/certs/ca.crt}}]\n"+
		"users: [{name: u, user: {token: %q}}]\ncontexts: [{name: x, context: {cluster: c, user: "+
		"u}}]\ncurrent-context: x\n", APIServer, token), err
}

// benchSerial measures the plain script on a fresh machine, from its start until the Node is Ready.
func (l *Lab) benchSerial(ctx context.Context, v Versions) (took float64, err error) {
	m, err := l.AddMachine(ctx, "bench-serial")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.dispose(context.WithoutCancel(ctx), m)) }()
	if err := l.stageSerial(ctx, m); err != nil {
		return 0, err
	}
	env, err := l.serialEnvironment(ctx, m, v)
	if err != nil {
		return 0, err
	}
	return l.timeReady(ctx, m, append(append([]string{"env"}, env...), "bash", "/root/serial.sh")...)
}

// stageSerial writes the script and its files to a machine.
func (l *Lab) stageSerial(ctx context.Context, m Machine) error {
	entries, err := os.ReadDir(l.path("serial"))
	if err != nil {
		return fmt.Errorf("cannot read the files: %w", err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(l.path("serial", e.Name()))
		if err != nil {
			return fmt.Errorf("cannot read the files: %w", err)
		}
		text := strings.ReplaceAll(string(data), "bench-ours", m.Name)
		if e.Name() == "conflist" {
			text = anyCIDR(text)
		}
		if err := l.Write(m, filepath.Join(filesDir, e.Name()), 0o600, []byte(text)); err != nil {
			return err
		}
	}
	kubeconfig, err := l.bootstrapKubeconfig(ctx)
	if err != nil {
		return err
	}
	return errors.Join(
		l.Write(m, filesDir+"/bootstrap-kubeconfig", 0o600, []byte(kubeconfig)),
		l.Write(m, "/root/serial.sh", 0o700, []byte(serialScript)),
	)
}

// anyCIDR replaces the pod subnet with the script's placeholder.
func anyCIDR(conflist string) string {
	before, rest, ok := strings.Cut(conflist, `"subnet": "`)
	_, after, closed := strings.Cut(rest, `"`)
	if !ok || !closed {
		return conflist
	}
	return before + `"subnet": "POD_CIDR"` + after
}

// serialEnvironment returns the script's environment: the addresses and paths that it needs.
func (l *Lab) serialEnvironment(ctx context.Context, m Machine, v Versions) ([]string, error) {
	catalog, err := l.artifacts(ctx, v)
	if err != nil {
		return nil, err
	}
	env := []string{"MIRROR=" + MirrorURL, "FILES=" + filesDir, "NODE=" + m.Name}
	for name, version := range v.artifacts() {
		a, err := catalog.Artifact(name, version)
		if err != nil {
			return nil, err
		}
		variable := map[string]string{"cni-plugins": "CNI", "node-problem-detector": "NPD"}[name]
		if variable == "" {
			variable = strings.ToUpper(name)
		}
		env = append(env, variable+"="+strings.TrimPrefix(a.Path, "/"), variable+"_SHA256="+a.SHA256)
	}
	return env, nil
}
