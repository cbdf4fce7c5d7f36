package lab

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/lab/mirror"
)

//go:embed serial.sh
var serialScript string

// Bandwidth is the mirror's speed while joins are measured: 100 Mbit/s, in bytes a second.
const Bandwidth = 100_000_000 / 8

// JoinTimes are the times of one round, in seconds, each from the start of the command to the Node being Ready as the API server
// tells it.
type JoinTimes struct {
	// Ours is `aks-flex-node bootstrap`; Serial the plain script, until the Node is Ready.
	// Directory is ours with the artifacts in a directory, to be verified and unpacked; Warm with them in the store.
	Ours, Serial, Directory, Warm float64
	// Bare is the start of containerd and kubelet with everything in place.
	Bare float64
	// Critical are the bytes that ours has downloaded of what a node needs to be Ready.
	Critical int64
}

// Limit is what no way of joining can beat: the critical bytes at full bandwidth, and the bare start.
func (j JoinTimes) Limit() float64 { return float64(j.Critical)/Bandwidth + j.Bare }

// BenchJoin measures one round: ours, the bare start, ours with the artifacts on disk, and the plain script, on fresh machines.
func (l *Lab) BenchJoin(ctx context.Context, agent string, v Versions) (JoinTimes, error) {
	var times JoinTimes
	defer func() { _ = l.Mirror().Set(context.WithoutCancel(ctx), mirror.Knobs{}) }() // a lab that is down has no mirror
	ours, err := l.benchMachine(ctx, "bench-ours", agent, v)
	if err != nil {
		return times, err
	}
	defer func() { err = errors.Join(err, l.dispose(context.WithoutCancel(ctx), ours)) }()
	if err := errors.Join(l.Mirror().Set(ctx, mirror.Knobs{BytesPerSecond: Bandwidth}), l.Mirror().Reset(ctx)); err != nil {
		return times, err
	}
	if times.Ours, err = l.timeReady(ctx, ours, "aks-flex-node", "bootstrap"); err != nil {
		return times, fmt.Errorf("ours: %w", err)
	}
	if times.Critical, err = l.criticalBytes(ctx); err != nil {
		return times, err
	}
	if err := l.serialFiles(ours); err != nil {
		return times, err
	}
	if times.Bare, err = l.benchBare(ctx, ours); err != nil {
		return times, fmt.Errorf("bare start: %w", err)
	}
	if times.Directory, err = l.benchDirectory(ctx, ours, agent, v); err != nil {
		return times, fmt.Errorf("directory: %w", err)
	}
	if times.Warm, err = l.benchWarm(ctx, ours); err != nil {
		return times, fmt.Errorf("warm: %w", err)
	}
	if times.Serial, err = l.benchSerial(ctx, v); err != nil {
		return times, fmt.Errorf("serial: %w", err)
	}
	return times, err
}

// benchMachine makes a machine with the agent and its configuration.
func (l *Lab) benchMachine(ctx context.Context, name, agent string, v Versions) (Machine, error) {
	m, err := l.AddMachine(ctx, name)
	if err != nil {
		return m, err
	}
	return m, l.Equip(ctx, m, agent, v)
}

// Equip makes a machine ready to join: agent, unit and configuration with a fresh token.
func (l *Lab) Equip(ctx context.Context, m Machine, agent string, v Versions, change ...func(map[string]any)) error {
	token, err := l.Token(ctx)
	if err != nil {
		return err
	}
	config, err := l.Config(ctx, m, v, token)
	if err != nil {
		return err
	}
	for _, f := range change {
		f(config)
	}
	return l.Prepare(ctx, m, agent, config)
}

// dispose removes a machine and its Node.
func (l *Lab) dispose(ctx context.Context, m Machine) error {
	_, err := l.Kubectl(ctx, "", "delete", "node", m.Name, "--ignore-not-found")
	return errors.Join(err, l.RemoveMachine(ctx, m.Name))
}

// timeReady runs a command in a machine and returns the seconds from its start until the API server says that the Node is Ready.
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

// adminClient speaks to the API server as its administrator.
func (l *Lab) adminClient() (*http.Client, error) {
	pair, err := tls.LoadX509KeyPair(l.path("pki", "admin.crt"), l.path("pki", "admin.key"))
	if err != nil {
		return nil, fmt.Errorf("cannot read the PKI: %w", err)
	}
	ca, err := l.CA()
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}}}, nil
}

func nodeReady(ctx context.Context, client *http.Client, name string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, APIServer+"/api/v1/nodes/"+name, nil)
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

// criticalBytes are what the mirror has sent of the files that a node needs to be Ready.
func (l *Lab) criticalBytes(ctx context.Context) (int64, error) {
	counts, err := l.Mirror().Counts(ctx)
	if err != nil {
		return 0, err
	}
	var sum int64
	for path, c := range counts {
		for _, late := range []string{"/kubectl", "/kubeadm", "node-problem-detector"} {
			if strings.Contains(path, late) {
				c.Bytes = 0
			}
		}
		sum += c.Bytes
	}
	return sum, nil
}

// filesDir is where the plain script finds the configuration files.
const filesDir = "/root/files"

// serialFiles keeps what ours has written on a machine for the plain script.
func (l *Lab) serialFiles(m Machine) error {
	dir := l.path("serial")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot keep the files: %w", err)
	}
	for name, path := range map[string]string{
		"modules.conf": "/etc/modules-load.d/aks-flex-node.conf", "sysctl.conf": "/etc/sysctl.d/99-aks-flex-node.conf", "config.toml": "/etc/containerd/config.toml",
		"containerd.service": "/etc/systemd/system/containerd.service", "ca.crt": "/etc/kubernetes/certs/ca.crt", "kubelet.yaml": "/etc/kubernetes/kubelet.yaml",
		"kubelet.service": "/etc/systemd/system/kubelet.service", "node-problem-detector.service": "/etc/systemd/system/node-problem-detector.service",
		"conflist": "/etc/cni/net.d/99-aks-flex-node.conflist",
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

// bootstrapKubeconfig is a kubeconfig with a fresh token.
func (l *Lab) bootstrapKubeconfig(ctx context.Context) (string, error) {
	token, err := l.Token(ctx)
	return fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q, certificate-authority: /etc/kubernetes/certs/ca.crt}}]\n"+
		"users: [{name: u, user: {token: %q}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n", APIServer, token), err
}

// benchBare measures the start of containerd and kubelet on a machine that has everything, as at its first join.
func (l *Lab) benchBare(ctx context.Context, m Machine) (float64, error) {
	if _, err := l.Output(ctx, m, "systemctl", "stop", "kubelet", "containerd", "node-problem-detector"); err != nil {
		return 0, err
	}
	if _, err := l.Kubectl(ctx, "", "delete", "node", m.Name); err != nil {
		return 0, err
	}
	if _, err := l.Output(ctx, m, "bash", "-c", "rm -rf /var/lib/kubelet/pki /var/lib/kubelet/kubeconfig"); err != nil {
		return 0, err
	}
	kubeconfig, err := l.bootstrapKubeconfig(ctx)
	if err != nil {
		return 0, err
	}
	if err := l.Write(m, "/var/lib/kubelet/bootstrap-kubeconfig", 0o600, []byte(kubeconfig)); err != nil {
		return 0, err
	}
	return l.timeReady(ctx, m, "systemctl", "start", "containerd", "kubelet")
}

// benchWarm joins the machine again with the store that it had, as an image has it into which the artifacts were baked.
func (l *Lab) benchWarm(ctx context.Context, m Machine) (float64, error) {
	if _, err := l.Output(ctx, m, "cp", "-a", "/opt/aks-flex-node", "/var/tmp/store"); err != nil {
		return 0, err
	}
	if err := l.giveBack(ctx, m); err != nil {
		return 0, err
	}
	if _, err := l.Output(ctx, m, "mv", "/var/tmp/store", "/opt/aks-flex-node"); err != nil {
		return 0, err
	}
	return l.timeReady(ctx, m, "aks-flex-node", "bootstrap")
}

func (l *Lab) giveBack(ctx context.Context, m Machine) error {
	_, err := l.Output(ctx, m, "aks-flex-node", "unbootstrap", "--drain-timeout=0")
	return err
}

// benchDirectory gives the machine back and joins it again with the artifacts in a directory of its own.
func (l *Lab) benchDirectory(ctx context.Context, m Machine, agent string, v Versions) (float64, error) {
	if err := l.giveBack(ctx, m); err != nil {
		return 0, err
	}
	const dir = "/var/tmp/artifacts"
	if err := l.copyArtifacts(ctx, filepath.Join(m.Root, dir), v); err != nil {
		return 0, err
	}
	err := l.Equip(ctx, m, agent, v, func(c map[string]any) {
		artifacts := c["artifacts"].(map[string]any)
		delete(artifacts, "mirror")
		artifacts["directory"] = dir
	})
	if err != nil {
		return 0, err
	}
	return l.timeReady(ctx, m, "aks-flex-node", "bootstrap")
}

// copyArtifacts fills a directory as an air-gapped host is given it.
func (l *Lab) copyArtifacts(ctx context.Context, dst string, v Versions) error {
	dirs, err := l.build(ctx)
	if err != nil {
		return err
	}
	catalog, err := l.catalog(ctx, dirs)
	if err != nil {
		return err
	}
	wanted := mirror.Catalog{Files: map[string]mirror.File{}}
	for name, version := range v.artifacts() {
		a, err := catalog.Artifact(name, version)
		if err != nil {
			return err
		}
		stem := strings.TrimSuffix(strings.TrimSuffix(a.Path, ".tar.gz"), ".tgz")
		for path, file := range catalog.Files {
			if path == a.Path || path == stem+".zst" || path == stem+".tar.zst" {
				wanted.Files[path] = file
			}
		}
	}
	return wanted.Directory(ctx, dst)
}

// artifacts are the versions of all artifacts, by name.
func (v Versions) artifacts() map[string]string {
	return map[string]string{
		"kubelet": v.Kubernetes, "kubectl": v.Kubernetes, "kubeadm": v.Kubernetes, "containerd": v.Containerd,
		"runc": runcVersion, "cni-plugins": cniVersion, "node-problem-detector": npdVersion,
	}
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

// stageSerial puts the script and its files into a machine.
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

// anyCIDR puts the script's placeholder in the place of a pod subnet.
func anyCIDR(conflist string) string {
	before, rest, ok := strings.Cut(conflist, `"subnet": "`)
	_, after, closed := strings.Cut(rest, `"`)
	if !ok || !closed {
		return conflist
	}
	return before + `"subnet": "POD_CIDR"` + after
}

// serialEnvironment tells the script where everything is.
func (l *Lab) serialEnvironment(ctx context.Context, m Machine, v Versions) ([]string, error) {
	list, err := l.Mirror().Artifacts(ctx)
	if err != nil {
		return nil, err
	}
	catalog := mirror.Catalog{Artifacts: list}
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
