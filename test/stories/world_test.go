// Package stories tests the life of a machine, in process and without root: the agent's verbs on a
// temporary root, with a fake systemd and kernel, a small API server, and a fuse that kills a run
// at its n-th touch of the machine.
package stories

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/host/systemdtest"
	limits "github.com/Azure/AKSFlexNode/internal/policy"
	"github.com/Azure/AKSFlexNode/internal/progress"
)

// world is one machine and its cluster.
type world struct {
	t       testing.TB
	root    string
	cluster *cluster
	systemd *systemdtest.Systemd
	kernel  *kernel
	config  config.Config
	store   string // the directory that artifacts come from
	log     journal
	// program is the path of aks-flex-node, which kubelet calls for tokens.
	program string
	// trusted checks the program; nil accepts any.
	trusted func(program string) error
	// refused is set if kubelet cannot start.
	refused bool
	// containerd is the running version if the configuration has none.
	containerd string
	// programs runs the programs of others.
	programs host.Programs
	// disk drops unsynced data on request; nil drops nothing.
	disk *disk
	// offer is the answer of a configuration URL, or of the provider.
	offer change.Delivery
	// provider is the resource provider that the machine reaches; nil for none.
	provider *provider
	// mirror answers requests for artifacts; nil is the network.
	mirror http.RoundTripper
	// settling is the time for which kubelet must have run as one process; 0 for none.
	settling time.Duration
	// sick makes kubelet's health endpoint fail.
	sick atomic.Bool
	// deaf is the number of times that containerd must be started until it serves kubelet.
	deaf atomic.Int64
	// hung is the number of requests that containerd does not answer.
	hung  atomic.Int64
	exits atomic.Bool // containerd accepts no connections
	// facts changes the facts of the machine; may be nil.
	facts func(*host.Facts)
	// mute makes systemd answer no request.
	mute atomic.Bool
	fuse
}

// journal is a log that many goroutines write.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
	// hears is called with each line, unless it is nil.
	hears func(line string)
}

func (j *journal) Write(p []byte) (int, error) {
	if j.hears != nil {
		j.hears(string(p))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// emptyWorld returns an empty machine and its cluster.
func emptyWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, root: tempDir(t), cluster: newCluster(t),
		fuse: fuse{left: -1, over: make(chan struct{})}}
	t.Cleanup(func() { close(w.over) })
	w.systemd = systemdtest.New(w.root)
	w.kernel = &kernel{root: w.root, residue: map[string]bool{}, tables: map[string]int{}}
	w.cluster.ready = w.networked
	w.cluster.running = w.kubeletSince
	w.cluster.touched = func(ctx context.Context) (done func()) {
		if p, ok := ctx.Value(callerKey{}).(*process); ok {
			return w.touch(p)
		}
		return w.touch(w.running())
	}
	w.systemd.OnStart = w.start
	return w
}

// newWorld returns a machine with others' files on it, which will join.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := emptyWorld(t)
	for path, text := range map[string]string{
		"/etc/os-release":  "ID=ubuntu\nVERSION_ID=\"24.04\"\nPRETTY_NAME=\"Ubuntu 24.04 LTS\"\n",
		"/etc/machine-id":  ownID + "\n",
		"/etc/resolv.conf": "nameserver 192.0.2.1\n", "/etc/fstab": "/swap.img none swap sw 0 0\n",
		"/opt/cni/bin/theirs": "#!/bin/sh\n", "/usr/local/bin/kubectl": "an older kubectl of the owner",
		"/etc/sysctl.d/10-theirs.conf": "# theirs\n",
		"/proc/swaps":                  "Filename Type Size Used Priority\n/swap.img file 1 0 -2\n",
		"/proc/filesystems":            "\text4\n",
		"/etc/systemd/system/swap.img.swap.d/theirs.conf": "", "/run/systemd/system/.keep": "",
	} {
		w.write(path, text)
	}
	for name, value := range map[string]string{
		"net/bridge/bridge-nf-call-iptables": "0", "net/bridge/bridge-nf-call-ip6tables": "0",
		"net/ipv4/ip_forward": "0", "vm/overcommit_memory": "0", "vm/panic_on_oom": "0",
		"kernel/panic": "0", "kernel/panic_on_oops": "0", "kernel/keys/root_maxkeys": "200",
		"kernel/keys/root_maxbytes": "20000", "net/ipv6/conf/all/forwarding": "0",
		"net/ipv6/conf/all/disable_ipv6": "0", "net/ipv6/conf/default/disable_ipv6": "0",
	} {
		w.write("/proc/sys/"+name, value+"\n")
	}
	for _, dir := range []string{"/usr/local/sbin", "/sys/module", "/var/lib", "/var/log", "/run",
		"/etc/systemd/system"} {
		if err := os.MkdirAll(filepath.Join(w.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.systemd.Generate("swap.img.swap")
	w.allow(`{"allow": {"overrides": true, "paths": true}}`)
	w.config = w.configuration()
	return w
}

// allow writes the machine's policy as its owner; "" removes it. The artifacts of the stories come
// from a directory of this computer, which a provider may not set without a policy.
func (w *world) allow(policy string) {
	w.t.Helper()
	if policy != "" {
		w.write(limits.File, policy)
	} else if err := os.Remove(filepath.Join(w.root, limits.File)); err != nil {
		w.t.Fatal(err)
	}
}

// tempDir returns a directory in memory if there is one: every write is synced, and these tests
// write a lot.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "story")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (w *world) write(path, text string) {
	w.t.Helper()
	full := filepath.Join(w.root, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755),
		os.WriteFile(full, []byte(text), 0o644)); err != nil {
		w.t.Fatal(err)
	}
}

// start acts as a service that starts.
func (w *world) start(unit, text string) error {
	switch unit {
	case "containerd.service":
		w.deaf.Store(max(w.deaf.Load()-1, 0))
		w.kernel.leave("interface:cni0", "process:/opt/aks-flex-node", "chain:CNI-")
		for _, path := range []string{"/var/lib/containerd/io.containerd/meta.db",
			"/run/containerd/containerd.sock", "/var/lib/cni/networks/x"} {
			if _, err := os.Stat(filepath.Dir(filepath.Dir(filepath.Join(w.root, path)))); err == nil {
				w.write(path, "x")
			}
		}
	case "kubelet.service":
		w.kernel.leave("cgroup:kubepods.slice", "chain:KUBE-")
		w.write("/var/lib/kubelet/pods/p1/volumes/data", "a pod's")
		w.write("/var/log/pods/p1/0.log", "hello")
		machineID, _ := os.ReadFile(filepath.Join(w.root, "/etc/machine-id"))
		return w.cluster.register(w.root, text, corev1.NodeSystemInfo{
			MachineID:               strings.TrimSpace(string(machineID)),
			KubeletVersion:          w.kubeletVersion(),
			ContainerRuntimeVersion: "containerd://" + w.containerdVersion(),
		})
	}
	return nil
}

// networked reports whether kubelet runs and has a pod network, like kubelet.
func (w *world) networked(string) bool {
	is, err := w.systemd.Unit(context.Background(), "kubelet.service", true)
	found, globErr := filepath.Glob(filepath.Join(w.root, "/etc/cni/net.d/*.conflist"))
	return err == nil && globErr == nil && is.Active == "active" && len(found) > 0
}

// kubeletSince returns the time at which kubelet was started; zero while it does not run.
func (w *world) kubeletSince() time.Time {
	is, err := w.systemd.Unit(context.Background(), "kubelet.service", true)
	if err != nil || is.Active != "active" {
		return time.Time{}
	}
	return is.Since
}

// agent returns a new agent on this machine for each run, like a process.
func (w *world) agent() *change.Agent {
	log := slog.New(slog.NewTextHandler(&w.log, nil))
	p := w.begin()
	real := &host.Host{
		Root: w.root, Systemd: &mute{w.systemd, w.mute.Load}, Kernel: w.kernel, Log: log,
		SecretDir:  saved.RunDir,
		PackageDir: access.PackageDir,
		Programs:   w.programs,
		Touch:      func(string) (func(), error) { return w.touch(p), nil },
	}
	var machine change.Machine = real
	if w.facts != nil {
		machine = told{real, &patient{world: w, facts: w.facts}}
	}
	if w.disk != nil {
		machine = &cutMachine{Machine: machine, root: w.root, disk: w.disk}
	}
	return &change.Agent{
		Env: inspect.Env{
			Reader: machine, Root: w.root, Log: log,
			Show: func(e progress.Event) { progress.Log(log, e) },
			Poll: time.Millisecond, Program: w.program,
			Settling: max(w.settling, time.Nanosecond), Healthz: w.kubeletHealth, Runtime: w.served,
			Version: "story", Trusted: w.judge,
			Dial: func(ctx context.Context, network, where string) (net.Conn, error) {
				return w.cluster.dial(context.WithValue(ctx, callerKey{}, p), network, where)
			},
		},
		Machine:  machine,
		Given:    func() *config.Config { return &w.config },
		Provider: w.client, Identity: w.identity,
		Client: func(func(*http.Request) (*url.URL, error)) *http.Client {
			if w.mirror != nil {
				return &http.Client{Transport: w.mirror}
			}
			return artifact.NewClient(nil)
		},
	}
}

// judge checks the program that root and kubelet run.
func (w *world) judge(program string) error {
	if w.trusted == nil {
		return nil
	}
	return w.trusted(program)
}

// kubeletHealth returns the answer of kubelet's health endpoint.
func (w *world) kubeletHealth(context.Context) error {
	if w.sick.Load() || w.kubeletSince().IsZero() {
		return errors.New("kubelet does not answer")
	}
	return nil
}

// run runs one process to its end, or until the fuse kills it.
func (w *world) run(do func(context.Context, *change.Agent) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	a := w.agent()
	p := w.running()
	ended := make(chan error, 1)
	go func() { ended <- do(ctx, a) }()
	select {
	case err := <-ended:
		cancel()
		return err
	case <-p.killed:
		w.t.Cleanup(cancel) // what the dead process was waiting for never comes
		w.rest(p)
		w.unlock()
		return errKilled
	}
}

// unlock releases the locks of a killed process, like the kernel.
func (w *world) unlock() {
	for _, name := range []string{"lock", "daemon.lock", "token.lock"} {
		os.Remove(filepath.Join(w.root, saved.RunDir, name))
	}
}

func (w *world) bootstrap() (result change.Result, err error) {
	err = w.run(func(ctx context.Context, a *change.Agent) error {
		result, err = change.Bootstrap(ctx, a, change.Input{Config: w.config, Origin: "file"})
		return err
	})
	return result, err
}

func (w *world) unbootstrap() error {
	return w.run(func(ctx context.Context, a *change.Agent) error {
		var given *config.Config
		if w.config.Azure.ArcEnabled() { // the command reads the file
			given = &w.config
		}
		_, err := change.Unbootstrap(ctx, a, given, change.Leave{})
		return err
	})
}

func (w *world) drift(repair bool) (report inspect.Report, err error) {
	err = w.run(func(ctx context.Context, a *change.Agent) error {
		if repair {
			report, err = change.Repair(ctx, a, nil)
		} else {
			report, err = inspect.Drift(ctx, &a.Env)
		}
		return err
	})
	return report, err
}

// repair repairs one resource, like the daemon.
func (w *world) repair(thing string) error {
	return w.run(func(ctx context.Context, a *change.Agent) error {
		_, err := change.Repair(ctx, a, []string{thing})
		return err
	})
}

// configuration returns the user's configuration.
func (w *world) configuration(change ...func(map[string]any)) config.Config {
	w.t.Helper()
	read, err := config.Parse(w.document(change...),
		config.Host{HostName: "edge-1", Arch: runtime.GOARCH})
	if err != nil {
		w.t.Fatal(err)
	}
	return read.Config
}

// document returns the text of a configuration.
func (w *world) document(change ...func(map[string]any)) []byte {
	w.t.Helper()
	files, err := releases()
	if err != nil {
		w.t.Fatal(err)
	}
	w.store = filepath.Join(w.t.TempDir(), "artifacts")
	overrides := map[string]any{}
	for path, data := range files {
		full := filepath.Join(w.store, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755),
			os.WriteFile(full, data, 0o644)); err != nil {
			w.t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		for name, part := range map[string]string{"kubelet": "/kubelet", "kubectl": "/kubectl",
			"kubeadm": "/kubeadm", "runc": "runc." + runtime.GOARCH, "containerd": "containerd-2",
			"cni-plugins": "cni-plugins", "node-problem-detector": "problem-detector-v"} {
			if strings.Contains(path, part) {
				overrides[name] = map[string]any{"sha256": hex.EncodeToString(sum[:])}
			}
		}
	}
	c := map[string]any{
		"azure": map[string]any{
			"bootstrapToken": map[string]any{"token": w.cluster.token},
			"targetCluster": map[string]any{
				"resourceId": "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg" +
					"/providers/Microsoft.ContainerService/managedClusters/c",
				"location": "x",
			},
		},
		"kubernetes": map[string]any{"version": "1.34.4"},
		"containerd": map[string]any{"version": "2.2.7"},
		"runc":       map[string]any{"version": "1.3.4"},
		"cni":        map[string]any{"version": "1.9.1"},
		"npd":        map[string]any{"version": "1.34.0"},
		"node": map[string]any{
			"labels": map[string]any{"example.com/site": "north"},
			"kubelet": map[string]any{"serverURL": w.cluster.URL,
				"caCertData": base64.StdEncoding.EncodeToString(w.cluster.caPEM)},
		},
		"agent":     map[string]any{"nodeName": "edge-1", "readyTimeout": "10s"},
		"artifacts": map[string]any{"directory": w.store, "overrides": overrides},
	}
	for _, f := range change {
		f(c)
	}
	text, err := json.Marshal(c)
	if err != nil {
		w.t.Fatal(err)
	}
	return text
}

// tree describes everything on the machine, and the state of its kernel and systemd.
func (w *world) tree() string {
	w.t.Helper()
	var lines []string
	err := filepath.WalkDir(w.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, w.root)
		if name == saved.RunDir || strings.HasPrefix(name, saved.RunDir+"/") {
			return nil // in memory, and gone with the next boot: locks name their last holder
		}
		line := fmt.Sprintf("%s %s", name, info.Mode())
		switch info.Mode().Type() {
		case 0:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %q", strings.TrimSpace(string(data)))
		case fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " -> " + target
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	sort.Strings(lines)
	lines = append(lines, "running "+strings.Join(w.systemd.Active(), " "),
		"residue "+w.kernel.show())
	return strings.Join(lines, "\n")
}

// same fails unless the machine is unchanged.
func (w *world) same(before string) {
	w.t.Helper()
	if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(w.tree(), "\n")); diff != "" {
		w.t.Errorf("the machine is not as it was (-before +after):\n%s", diff)
	}
}
