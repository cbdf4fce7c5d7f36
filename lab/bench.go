package lab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/lab/mirror"
)

// Bandwidth is the mirror's speed during measured joins, in bytes per second: 100 Mbit/s.
const Bandwidth = 100_000_000 / 8

// ProgramTimes holds a program's times on a fresh machine.
type ProgramTimes struct {
	// Ready is the time in seconds from the start of `bootstrap` until the API server reports that the
	// Node is Ready.
	Ready float64
	// Second is the time in milliseconds of a `bootstrap` that is a no-op, without entering the
	// machine: the median of five.
	Second float64
	// Leave is the time in seconds of `unbootstrap --drain-timeout=0`, without entering the machine.
	Leave float64
}

// JoinTimes holds the times of a round in seconds, each from the start of the command until the API
// server reports that the Node is Ready.
type JoinTimes struct {
	// Ours are the times of `aks-flex-node`, Serial that of the plain script.
	Ours   ProgramTimes
	Serial float64
	// Directory is ours with the artifacts in a directory, which are verified and unpacked; Warm with
	// the artifacts in the store.
	Directory, Warm float64
	// Bare is the start of containerd and kubelet with everything installed.
	Bare float64
	// Critical is the number of bytes that ours downloads before the node can be Ready.
	Critical int64
}

// Limit returns the lower bound of a join: downloading the critical bytes at full bandwidth and the
// bare start.
func (j JoinTimes) Limit() float64 { return float64(j.Critical)/Bandwidth + j.Bare }

// BenchProgram measures an agent on a fresh machine.
func (l *Lab) BenchProgram(
	ctx context.Context, name, program string, v Versions,
) (times ProgramTimes, err error) {
	m, err := l.benchMachine(ctx, name, program, v)
	if err != nil {
		return times, err
	}
	defer func() { err = errors.Join(err, l.dispose(context.WithoutCancel(ctx), m)) }()
	defer l.fullSpeed(ctx)
	if times, err = l.benchFirst(ctx, m); err != nil {
		return times, err
	}
	times.Leave, err = l.giveBack(ctx, m)
	return times, err
}

// benchFirst measures the first join of a fresh machine and no-op bootstraps after it. It leaves
// the mirror limited to Bandwidth.
func (l *Lab) benchFirst(ctx context.Context, m Machine) (times ProgramTimes, err error) {
	if err := errors.Join(l.Mirror().Set(ctx, mirror.Knobs{BytesPerSecond: Bandwidth}),
		l.Mirror().Reset(ctx)); err != nil {
		return times, err
	}
	if times.Ready, err = l.timeReady(ctx, m, "aks-flex-node", "bootstrap"); err != nil {
		return times, err
	}
	var seconds []float64
	for range 5 {
		took, err := l.timeInside(ctx, m, "aks-flex-node", "bootstrap")
		if err != nil {
			return times, err
		}
		seconds = append(seconds, 1000*took)
	}
	slices.Sort(seconds)
	times.Second = seconds[len(seconds)/2]
	return times, nil
}

// fullSpeed removes the mirror's bandwidth limit.
func (l *Lab) fullSpeed(ctx context.Context) {
	// Without a running lab there is no mirror.
	_ = l.Mirror().Set(context.WithoutCancel(ctx), mirror.Knobs{})
}

// timeInside runs a command in a machine and returns its time in seconds, without entering the
// machine.
func (l *Lab) timeInside(ctx context.Context, m Machine, argv ...string) (float64, error) {
	const script = `a=$EPOCHREALTIME
"$@" >/tmp/bench.out 2>&1 || { tail -5 /tmp/bench.out >&2; exit 1; }
echo $a $EPOCHREALTIME`
	out, err := l.Output(ctx, m, append([]string{"bash", "-c", script, "bash"}, argv...)...)
	if err != nil {
		return 0, err
	}
	var began, ended float64
	if _, err := fmt.Sscan(out, &began, &ended); err != nil {
		return 0, fmt.Errorf("cannot read the time of %s in %s: %w", argv[0], m.Name, err)
	}
	return ended - began, nil
}

// BenchJoin measures a round: ours, ours with the artifacts on disk, the bare start, and the plain
// script on its own machine.
func (l *Lab) BenchJoin(
	ctx context.Context, agent string, v Versions,
) (times JoinTimes, err error) {
	ours, err := l.benchMachine(ctx, "bench-ours", agent, v)
	if err != nil {
		return times, err
	}
	defer func() { err = errors.Join(err, l.dispose(context.WithoutCancel(ctx), ours)) }()
	defer l.fullSpeed(ctx)
	if times.Ours, err = l.benchFirst(ctx, ours); err != nil {
		return times, fmt.Errorf("ours: %w", err)
	}
	if times.Critical, err = l.criticalBytes(ctx); err != nil {
		return times, err
	}
	if err := l.serialFiles(ours); err != nil {
		return times, err
	}
	if times.Ours.Leave, err = l.giveBack(ctx, ours); err != nil {
		return times, fmt.Errorf("ours: %w", err)
	}
	if times.Directory, err = l.benchDirectory(ctx, ours, agent, v); err != nil {
		return times, fmt.Errorf("directory: %w", err)
	}
	if times.Bare, err = l.benchBare(ctx, ours); err != nil {
		return times, fmt.Errorf("bare start: %w", err)
	}
	if times.Warm, err = l.benchWarm(ctx, ours); err != nil {
		return times, fmt.Errorf("warm: %w", err)
	}
	if times.Serial, err = l.benchSerial(ctx, v); err != nil {
		return times, fmt.Errorf("serial: %w", err)
	}
	return times, err
}

// benchMachine adds a machine with the agent and its configuration.
func (l *Lab) benchMachine(ctx context.Context, name, agent string, v Versions) (Machine, error) {
	m, err := l.AddMachine(ctx, name)
	if err != nil {
		return m, err
	}
	return m, l.Equip(ctx, m, agent, v)
}

// Equip installs the agent, its unit and a configuration with a new token on a machine.
func (l *Lab) Equip(
	ctx context.Context, m Machine, agent string, v Versions, change ...func(map[string]any),
) error {
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

// criticalBytes returns the number of bytes that the mirror has sent of files that a node needs to
// be Ready.
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

// benchBare measures the start of containerd and kubelet with everything installed but no
// certificate or Node, as in a first join.
func (l *Lab) benchBare(ctx context.Context, m Machine) (float64, error) {
	if _, err := l.Output(ctx, m, "systemctl", "stop", "kubelet", "containerd",
		"node-problem-detector"); err != nil {
		return 0, err
	}
	if _, err := l.Kubectl(ctx, "", "delete", "node", m.Name); err != nil {
		return 0, err
	}
	if _, err := l.Output(ctx, m, "bash", "-c",
		"rm -rf /var/lib/kubelet/pki /var/lib/kubelet/kubeconfig"); err != nil {
		return 0, err
	}
	kubeconfig, err := l.bootstrapKubeconfig(ctx)
	if err != nil {
		return 0, err
	}
	if err := l.Write(m, "/var/lib/kubelet/bootstrap-kubeconfig", 0o600,
		[]byte(kubeconfig)); err != nil {
		return 0, err
	}
	return l.timeReady(ctx, m, "systemctl", "start", "containerd", "kubelet")
}

// benchWarm measures a join with the artifacts in the store, as on a machine from an image that
// includes them.
func (l *Lab) benchWarm(ctx context.Context, m Machine) (float64, error) {
	if _, err := l.Output(ctx, m, "cp", "-a", "/opt/aks-flex-node", "/var/tmp/store"); err != nil {
		return 0, err
	}
	if _, err := l.giveBack(ctx, m); err != nil {
		return 0, err
	}
	if _, err := l.Output(ctx, m, "mv", "/var/tmp/store", "/opt/aks-flex-node"); err != nil {
		return 0, err
	}
	return l.timeReady(ctx, m, "aks-flex-node", "bootstrap")
}

// giveBack runs unbootstrap and returns its time in seconds.
func (l *Lab) giveBack(ctx context.Context, m Machine) (float64, error) {
	return l.timeInside(ctx, m, "aks-flex-node", "unbootstrap", "--yes", "--drain-timeout=0")
}

// benchDirectory measures a join with the artifacts in a directory, on a machine that has left the
// cluster.
func (l *Lab) benchDirectory(
	ctx context.Context, m Machine, agent string, v Versions,
) (float64, error) {
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

// copyArtifacts fills a directory with the artifacts, as for an air-gapped host.
func (l *Lab) copyArtifacts(ctx context.Context, dst string, v Versions) error {
	catalog, err := l.catalog(ctx)
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

// artifacts returns the versions of all artifacts by name.
func (v Versions) artifacts() map[string]string {
	return map[string]string{
		"kubelet": v.Kubernetes, "kubectl": v.Kubernetes, "kubeadm": v.Kubernetes,
		"containerd": v.Containerd,
		"runc":       runcVersion, "cni-plugins": cniVersion, "node-problem-detector": npdVersion,
	}
}
