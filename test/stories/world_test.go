// Package stories tells what happens to a machine, in process and without root: the agent's verbs on a temporary root, with a
// fake systemd and kernel, a small API server, and a fuse that kills a run at its n-th touch of the machine.
package stories

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/agent"
	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/host/systemdtest"
	"github.com/Azure/AKSFlexNode/internal/state"
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
	// fuse kills a run when it reaches zero; negative never does.
	fuse    int
	touches int
	log     bytes.Buffer
	// program is the path of aks-flex-node, which kubelet calls for tokens.
	program string
}

var errKilled = errors.New("killed")

// newWorld makes a machine on which others have left things too, and which is to join.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, root: tempDir(t), cluster: newCluster(t), fuse: -1}
	w.systemd = systemdtest.New(w.root)
	w.kernel = &kernel{root: w.root, residue: map[string]bool{}}
	w.cluster.ready = w.networked
	w.systemd.OnStart = w.start
	for path, text := range map[string]string{
		"/etc/os-release": "ID=ubuntu\nVERSION_ID=\"24.04\"\nPRETTY_NAME=\"Ubuntu 24.04 LTS\"\n", "/etc/resolv.conf": "nameserver 192.0.2.1\n", "/etc/fstab": "/swap.img none swap sw 0 0\n",
		"/opt/cni/bin/theirs": "#!/bin/sh\n", "/usr/local/bin/kubectl": "an older kubectl of the owner", "/etc/sysctl.d/10-theirs.conf": "# theirs\n",
		"/proc/swaps": "Filename Type Size Used Priority\n/swap.img file 1 0 -2\n", "/proc/filesystems": "\text4\n",
		"/etc/systemd/system/swap.img.swap.d/theirs.conf": "", "/run/systemd/system/.keep": "",
	} {
		w.write(path, text)
	}
	for name, value := range map[string]string{
		"net/bridge/bridge-nf-call-iptables": "0", "net/bridge/bridge-nf-call-ip6tables": "0", "net/ipv4/ip_forward": "0", "vm/overcommit_memory": "0", "vm/panic_on_oom": "0",
		"kernel/panic": "0", "kernel/panic_on_oops": "0", "kernel/keys/root_maxkeys": "200", "kernel/keys/root_maxbytes": "20000",
	} {
		w.write("/proc/sys/"+name, value+"\n")
	}
	for _, dir := range []string{"/usr/local/sbin", "/sys/module", "/var/lib", "/var/log", "/run", "/etc/systemd/system"} {
		if err := os.MkdirAll(filepath.Join(w.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.systemd.Generate("swap.img.swap")
	w.config = w.configuration()
	return w
}

// tempDir is a directory in memory where there is one: every write is synced, and these tests write a lot.
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
	if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(text), 0o644)); err != nil {
		w.t.Fatal(err)
	}
}

// start is what services do when they start.
func (w *world) start(unit, text string) error {
	switch unit {
	case "containerd.service":
		w.kernel.leave("interface:cni0", "process:/opt/aks-flex-node", "chain:CNI-")
		for _, path := range []string{"/var/lib/containerd/io.containerd/meta.db", "/run/containerd/containerd.sock", "/var/lib/cni/networks/x"} {
			if _, err := os.Stat(filepath.Dir(filepath.Dir(filepath.Join(w.root, path)))); err == nil {
				w.write(path, "x")
			}
		}
	case "kubelet.service":
		w.kernel.leave("cgroup:kubepods.slice", "chain:KUBE-")
		w.write("/var/lib/kubelet/pods/p1/volumes/data", "a pod's")
		w.write("/var/log/pods/p1/0.log", "hello")
		return w.cluster.register(w.root, text)
	}
	return nil
}

// networked is what kubelet reports: it runs, and there is a pod network.
func (w *world) networked(string) bool {
	is, err := w.systemd.Unit(context.Background(), "kubelet.service")
	found, globErr := filepath.Glob(filepath.Join(w.root, "/etc/cni/net.d/*.conflist"))
	return err == nil && globErr == nil && is.Active == "active" && len(found) > 0
}

// agent is the agent on this machine. It is made anew for each run, as a process is.
func (w *world) agent() *agent.Agent {
	log := slog.New(slog.NewTextHandler(&w.log, nil))
	machine := &host.Host{Root: w.root, Systemd: w.systemd, Kernel: w.kernel, Log: log, Touch: w.touch}
	return &agent.Agent{
		Machine: machine, Root: w.root, Log: log, Poll: time.Millisecond, Program: w.program,
		Client: func(func(*http.Request) (*url.URL, error)) *http.Client { return artifact.NewClient(nil) },
	}
}

func (w *world) touch(string) error {
	w.touches++
	if w.fuse < 0 {
		return nil
	}
	if w.fuse == 0 {
		return errKilled
	}
	w.fuse--
	return nil
}

func (w *world) bootstrap() (agent.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return w.agent().Bootstrap(ctx, w.config)
}

func (w *world) unbootstrap() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err := w.agent().Unbootstrap(ctx, nil, agent.Leave{})
	return err
}

// releases are the artifacts of these stories: small files in the layout of a mirror, and their digests.
var releases = sync.OnceValues(func() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, name := range []string{"kubelet", "kubectl", "kubeadm"} {
		files["dl.k8s.io/v1.34.4/bin/linux/amd64/"+name] = []byte("#!/bin/sh\n# " + name + "\n")
	}
	files["github.com/opencontainers/runc/releases/download/v1.3.4/runc.amd64"] = []byte("#!/bin/sh\n# runc\n")
	plugins := []string{"bandwidth", "bridge", "dhcp", "dummy", "firewall", "host-device", "host-local", "ipvlan", "loopback", "macvlan", "portmap", "ptp", "sbr", "static", "tap", "tuning", "vlan", "vrf"}
	for path, entries := range map[string][]string{
		"github.com/containerd/containerd/releases/download/v2.2.1/containerd-2.2.1-linux-amd64.tar.gz":                          {"bin/containerd", "bin/containerd-shim-runc-v2", "bin/ctr"},
		"github.com/containernetworking/plugins/releases/download/v1.9.1/cni-plugins-linux-amd64-v1.9.1.tgz":                     plugins,
		"github.com/kubernetes/node-problem-detector/releases/download/v1.34.0/node-problem-detector-v1.34.0-linux_amd64.tar.gz": {"bin/node-problem-detector", "config/kernel-monitor.json"},
	} {
		archive, err := pack(entries)
		if err != nil {
			return nil, err
		}
		files[path] = archive
	}
	return files, nil
})

func pack(entries []string) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	for _, name := range entries {
		text := "#!/bin/sh\n# " + name + "\n"
		if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			return nil, err
		}
		if _, err := t.Write([]byte(text)); err != nil {
			return nil, err
		}
	}
	err := errors.Join(t.Close(), z.Close())
	return b.Bytes(), err
}

// configuration is what the user writes.
func (w *world) configuration(change ...func(map[string]any)) config.Config {
	w.t.Helper()
	files, err := releases()
	if err != nil {
		w.t.Fatal(err)
	}
	w.store = filepath.Join(w.t.TempDir(), "artifacts")
	overrides := map[string]any{}
	for path, data := range files {
		full := filepath.Join(w.store, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, data, 0o644)); err != nil {
			w.t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		for name, part := range map[string]string{"kubelet": "/kubelet", "kubectl": "/kubectl", "kubeadm": "/kubeadm", "runc": "runc.amd64", "containerd": "containerd-2", "cni-plugins": "cni-plugins", "node-problem-detector": "problem-detector-v"} {
			if strings.Contains(path, part) {
				overrides[name] = map[string]any{"sha256": hex.EncodeToString(sum[:])}
			}
		}
	}
	c := map[string]any{
		"azure": map[string]any{
			"bootstrapToken": map[string]any{"token": w.cluster.token},
			"targetCluster":  map[string]any{"resourceId": "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg/providers/Microsoft.ContainerService/managedClusters/c", "location": "x"},
		},
		"kubernetes": map[string]any{"version": "1.34.4"}, "containerd": map[string]any{"version": "2.2.1"},
		"node": map[string]any{
			"labels":  map[string]any{"example.com/site": "north"},
			"kubelet": map[string]any{"serverURL": w.cluster.URL, "caCertData": base64.StdEncoding.EncodeToString(w.cluster.caPEM)},
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
	parsed, _, err := config.Parse(text, config.Host{HostName: "edge-1", Arch: "amd64"})
	if err != nil {
		w.t.Fatal(err)
	}
	return parsed
}

// tree describes everything on the machine, and what its kernel and systemd hold.
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
		if name == agent.RunDir+"/lock" {
			return nil // it names its last holder
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
	units, err := w.systemd.Units(context.Background(), "*")
	if err != nil {
		w.t.Fatal(err)
	}
	slices.Sort(units)
	lines = append(lines, "running "+strings.Join(units, " "), "residue "+w.kernel.show())
	return strings.Join(lines, "\n")
}

// same fails unless the machine is as it was.
func (w *world) same(before string) {
	w.t.Helper()
	if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(w.tree(), "\n")); diff != "" {
		w.t.Errorf("the machine is not as it was (-before +after):\n%s", diff)
	}
}

// kernel is a kernel whose modules and swap are files below the root.
type kernel struct {
	root    string
	mu      sync.Mutex
	residue map[string]bool
}

func (k *kernel) leave(keys ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		k.residue[key] = true
	}
}

func (k *kernel) show() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var keys []string
	for key := range k.residue {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return strings.Join(keys, " ")
}

func (k *kernel) LoadModule(_ context.Context, name string) error {
	return os.MkdirAll(filepath.Join(k.root, "/sys/module", name), 0o755)
}

func (k *kernel) UnloadModule(name string) error {
	return os.Remove(filepath.Join(k.root, "/sys/module", name))
}

func (k *kernel) swaps(text string) error {
	return os.WriteFile(filepath.Join(k.root, "/proc/swaps"), []byte("Filename Type Size Used Priority\n"+text), 0o644)
}

func (k *kernel) SwapOff(string) error { return k.swaps("") }

func (k *kernel) SwapOn(name string, priority int) error {
	return k.swaps(fmt.Sprintf("%s file 1 0 %d\n", name, priority))
}

func (k *kernel) Find(_ context.Context, r state.Residue) ([]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := string(r.Kind) + ":" + r.Match
	if k.residue[key] {
		return []string{key}, nil
	}
	return nil, nil
}

func (k *kernel) Clear(_ context.Context, _ state.Residue, found []string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range found {
		delete(k.residue, key)
	}
	return nil
}
