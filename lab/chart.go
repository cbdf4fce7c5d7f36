package lab

import (
	"context"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/lab/component"
	"github.com/Azure/AKSFlexNode/lab/images"
	"github.com/Azure/AKSFlexNode/packaging/oci"
)

// ChartImage is the image of the provider under test in the lab's registry.
const ChartImage, ChartTag = "flexlab/flexnode-rp", "1"

// chartCredentials is the directory of secret files in the chart's pods.
const chartCredentials = "/run/credentials/flexnode-rp/"

// PublishProvider pushes the provider's image to the lab's registry.
func (l *Lab) PublishProvider(ctx context.Context) error {
	work, err := os.MkdirTemp(l.Dir, "image-")
	if err != nil {
		return fmt.Errorf("cannot make the provider's image: %w", err)
	}
	defer os.RemoveAll(work)
	programs, err := programsDir(work, filepath.Join(filepath.Dir(l.Self), "flexnode-rp"))
	out := filepath.Join(work, "image")
	if err == nil {
		err = l.release(ctx, "image", "--fast", "--programs", programs, "--version", ChartTag,
			"--architectures", runtime.GOARCH, "--out", out)
	}
	if err != nil {
		return fmt.Errorf("%w; run `make build`", err)
	}
	made, err := oci.ReadLayout(out)
	if err != nil {
		return err
	}
	return images.Push(ctx, ControlURL, ChartImage+":"+ChartTag, made)
}

// Helm runs helm as the administrator and returns what it printed.
func (l *Lab) Helm(ctx context.Context, args ...string) (string, error) {
	dir, err := l.Component(ctx, component.Helm)
	if err != nil {
		return "", err
	}
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "helm"), args...)
	home := l.path("helm")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+l.Kubeconfig(), "HELM_CACHE_HOME="+home,
		"HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err,
			strings.TrimSpace(stderr.String()))
	}
	return string(out), err
}

// ChartSettings returns the chart's value "settings" for a provider in the lab's cluster with a
// public URL. It serves the cluster that it runs in.
func (l *Lab) ChartSettings(ctx context.Context, url string) (map[string]any, error) {
	who, err := l.Azure()
	if err != nil {
		return nil, err
	}
	settings, err := l.commonSettings(ctx, who, chartCredentials+"ca.crt", chartCredentials+"azure")
	if err != nil {
		return nil, err
	}
	settings["publicURL"] = url
	settings["clusters"] = []object{{"id": ClusterID,
		"kubeconfig": "/etc/flexnode-rp/settings/in-cluster.kubeconfig", "trusted": true}}
	return settings, nil
}

// ChartSecrets creates a namespace with restricted pods for a provider in the lab's cluster, and
// the Secrets that the chart needs beforehand: the keys and a certificate for an address.
func (l *Lab) ChartSecrets(ctx context.Context, namespace, address string) error {
	who, err := l.Azure()
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(l.Dir, "chart-")
	if err != nil {
		return fmt.Errorf("cannot make the chart's Secrets: %w", err)
	}
	defer os.RemoveAll(work)
	secret, keys := filepath.Join(work, "azure"), filepath.Join(work, "keys.json")
	if err := os.WriteFile(secret, []byte(who.Provider.Secret), 0o600); err != nil {
		return fmt.Errorf("cannot make the chart's Secrets: %w", err)
	}
	if _, err := run(ctx, filepath.Join(filepath.Dir(l.Self), "flexnode-rp"), "keys", "init",
		keys); err != nil {
		return err
	}
	if err := l.issueServer("chart", address); err != nil {
		return err
	}
	if _, err := l.apply(ctx, fmt.Sprintf(`apiVersion: v1
kind: Namespace
metadata:
  name: %s
  labels: {pod-security.kubernetes.io/enforce: restricted}
`, namespace)); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"generic", "flexnode-rp-credentials", "--from-file=" + keys, "--from-file=" + secret,
			"--from-file=ca.crt=" + l.CAFile()},
		{"tls", "flexnode-rp-tls", "--cert=" + l.path("pki", "chart.crt"),
			"--key=" + l.path("pki", "chart.key")},
	} {
		if _, err := l.Kubectl(ctx, "", append([]string{"-n", namespace, "create", "secret"},
			args...)...); err != nil {
			return err
		}
	}
	return nil
}

// issueServer issues a server certificate for an address from the CA that machines trust.
func (l *Lab) issueServer(name, address string) error {
	ca, err := l.readIdentity("ca")
	if err != nil {
		return err
	}
	template := serverCertificate(name)
	template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	return l.issueTo(name, ca, template)
}

// VolumeDir is the directory of a machine's LocalVolume.
const VolumeDir = "/var/lib/flexlab-volume"

// LocalVolume creates a volume in a machine's directory for a claim, because the lab has no storage
// class.
func (l *Lab) LocalVolume(ctx context.Context, m Machine, namespace, claim string) error {
	if err := os.MkdirAll(filepath.Join(m.Root, VolumeDir), 0o700); err != nil {
		return fmt.Errorf("cannot make a volume in %s: %w", m.Name, err)
	}
	volume := object{
		"apiVersion": "v1", "kind": "PersistentVolume",
		"metadata": object{"name": namespace + "-" + claim},
		"spec": object{
			"capacity": object{"storage": "1Gi"}, "accessModes": []string{"ReadWriteOnce"},
			"persistentVolumeReclaimPolicy": "Retain", "local": object{"path": VolumeDir},
			"claimRef": object{"namespace": namespace, "name": claim},
			"nodeAffinity": object{"required": object{"nodeSelectorTerms": []object{{
				"matchExpressions": []object{{"key": "kubernetes.io/hostname", "operator": "In",
					"values": []string{m.Name}}}}}}},
		},
	}
	text, err := json.Marshal(volume)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	_, err = l.apply(ctx, string(text))
	return err
}

// chartETCD is the address of the etcd for providers in the lab's cluster.
const chartETCD = "https://" + HostIP + ":23890"

// StartChartETCD starts an etcd for providers in the lab's cluster, which authenticates clients by
// certificate. It returns a client's files: CA, certificate and key.
func (l *Lab) StartChartETCD(ctx context.Context) (url string, client [3]string, err error) {
	ca, err := l.readIdentity("ca")
	if err != nil {
		return "", client, err
	}
	template := clientCertificate(pkix.Name{CommonName: "flexnode-rp"})
	if err := l.issueTo("etcd-client", ca, template); err != nil {
		return "", client, err
	}
	dirs, err := l.build(ctx, func(c component.Component) bool { return c.Name == component.Etcd })
	if err != nil {
		return "", client, err
	}
	const peer = "http://127.0.0.1:23891"
	if err := l.background("chart-etcd", filepath.Join(dirs[component.Etcd], "etcd"),
		"--name=chart", "--data-dir="+l.path("chart-etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+chartETCD, "--advertise-client-urls="+chartETCD,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		"--initial-cluster=chart="+peer, "--log-level=error",
		"--cert-file="+l.path("pki", "server.crt"), "--key-file="+l.path("pki", "server.key"),
		"--client-cert-auth", "--trusted-ca-file="+l.CAFile()); err != nil {
		return "", client, err
	}
	err = until(ctx, time.Minute, "chart-etcd (see "+l.path("logs", "chart-etcd.log")+")",
		func() error {
			c, err := net.DialTimeout("tcp", strings.TrimPrefix(chartETCD, "https://"), time.Second)
			if err == nil {
				err = c.Close()
			}
			return err
		})
	return chartETCD, [3]string{l.CAFile(), l.path("pki", "etcd-client.crt"),
		l.path("pki", "etcd-client.key")}, err
}
