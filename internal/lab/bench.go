package lab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/lab/mirror"
)

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
	azure, err := l.Identify(ctx, m, "bootstrapToken")
	if err != nil {
		return err
	}
	config, err := l.Config(ctx, m, v, azure)
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
