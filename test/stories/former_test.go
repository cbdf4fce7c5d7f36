package stories

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/Azure/AKSFlexNode/internal/config"
)

// former is a machine as an agent of commit bd1efd1 left it (testdata/bd1efd1).
type former struct {
	// Configs are the documents that the owner gave, in their order.
	Configs []json.RawMessage
	// Running are the active units and Residue is what their programs have left.
	Running []string
	Residue string
	// Labels are those of the Node; nil when there is none.
	Labels map[string]string
	// Artifacts is the directory that artifacts came from, Azure where Azure was, and Program is
	// aks-flex-node.
	Artifacts, Azure, Program string
	// Disks are the directories on which a disk is mounted.
	Disks []string
	// Before is the machine before the join.
	Before []string

	files []archived
}

// archived is what is below a machine's root or in its directory of artifacts.
type archived struct {
	tar.Header
	data []byte
}

// formerMachines are the machines of the archive by name.
var formerMachines = sync.OnceValues(func() (map[string]*former, error) {
	packed, err := os.ReadFile("testdata/bd1efd1/machines.tar.zst")
	if err != nil {
		return nil, err
	}
	z, err := zstd.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	machines := map[string]*former{}
	for archive := tar.NewReader(z); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return machines, nil
		}
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			return nil, err
		}
		name, path, _ := strings.Cut(h.Name, "/")
		if path == "machine.json" {
			machines[name] = &former{}
			if err := json.Unmarshal(data, machines[name]); err != nil {
				return nil, err
			}
			continue
		}
		h.Name = path
		machines[name].files = append(machines[name].files, archived{*h, data})
	}
})

// formerWorld is one of these machines, with its cluster.
func formerWorld(t *testing.T, name string) *world {
	t.Helper()
	machines, err := formerMachines()
	if err != nil {
		t.Fatal(err)
	}
	f := machines[name]
	if f == nil {
		t.Fatalf("there is no machine %s", name)
	}
	w := emptyWorld(t)
	w.former, w.store = f, t.TempDir()
	w.mountDisks(t)
	if f.Azure != "" {
		w.simulateAzure(t, canary, "second-"+canary)
		w.program = f.Program
		w.cluster.programs = map[string]string{f.Program: w.installProgram(t)}
	}
	for _, file := range f.files {
		if err := w.unpack(file); err != nil {
			t.Fatal(err)
		}
	}
	w.config = w.formerConfiguration(len(f.Configs) - 1)
	w.resume(t)
	return w
}

// unpack puts a file where it was.
func (w *world) unpack(file archived) error {
	path, below := strings.CutPrefix(file.Name, "root/")
	at := filepath.Join(w.root, path)
	if !below {
		at = filepath.Join(w.store, strings.TrimPrefix(file.Name, "artifacts/"))
	}
	mode := os.FileMode(file.Mode).Perm()
	switch file.Typeflag {
	case tar.TypeDir:
		return errors.Join(os.MkdirAll(at, 0o755), os.Chmod(at, mode))
	case tar.TypeSymlink:
		return os.Symlink(file.Linkname, at)
	}
	data := file.data
	if strings.HasSuffix(path, "-config.json") {
		data = w.here(data)
	}
	return errors.Join(os.WriteFile(at, data, 0o600), os.Chmod(at, mode))
}

// here replaces the addresses that another run of this test has other ones for.
func (w *world) here(data []byte) []byte {
	data = bytes.ReplaceAll(data, []byte(w.former.Artifacts), []byte(w.store))
	if w.former.Azure != "" {
		data = bytes.ReplaceAll(data, []byte(w.former.Azure), []byte(w.cluster.issuer))
	}
	return data
}

// formerConfiguration is the owner's configuration number n, with changes, as it is read on this
// machine: the versions that it leaves open are those that the machine has.
func (w *world) formerConfiguration(n int, change ...func(map[string]any)) config.Config {
	w.t.Helper()
	var c map[string]any
	if err := json.Unmarshal(w.here(w.former.Configs[n]), &c); err != nil {
		w.t.Fatal(err)
	}
	for _, f := range change {
		f(c)
	}
	text, err := json.Marshal(c)
	if err != nil {
		w.t.Fatal(err)
	}
	before, err := w.agent().Applied(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	host := config.Host{HostName: "edge-1", Arch: "amd64", Before: before}
	parsed, _, err := config.Parse(text, host)
	if err != nil {
		w.t.Fatal(err)
	}
	return parsed
}

// resume runs what ran, and registers the Node as it was.
func (w *world) resume(t *testing.T) {
	t.Helper()
	start := w.systemd.OnStart
	w.systemd.OnStart = nil
	if err := w.systemd.Reload(t.Context()); err != nil { // as at boot
		t.Fatal(err)
	}
	const swap = "swap.img.swap"
	w.systemd.Generate(swap)
	if !slices.Contains(w.former.Running, swap) {
		if err := w.systemd.Stop(t.Context(), swap); err != nil {
			t.Fatal(err)
		}
	}
	for _, unit := range w.former.Running {
		if err := w.systemd.Start(t.Context(), unit); err != nil {
			t.Fatal(err)
		}
	}
	w.systemd.OnStart = start
	w.kernel.leave(strings.Fields(w.former.Residue)...)
	if w.former.Labels == nil {
		return
	}
	w.cluster.add(w.root, "edge-1", corev1.NodeSystemInfo{
		KubeletVersion:          "v" + w.config.Kubernetes.Version,
		ContainerRuntimeVersion: "containerd://" + w.config.Containerd.Version,
	})
	w.cluster.set(func() { w.cluster.nodes["edge-1"].Labels = maps.Clone(w.former.Labels) })
}

// mountDisks mounts the machine's disks in a mount namespace that only this goroutine sees.
func (w *world) mountDisks(t *testing.T) {
	t.Helper()
	if len(w.former.Disks) == 0 {
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	runtime.LockOSThread()
	err := unix.Unshare(unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	for _, dir := range w.former.Disks {
		at := filepath.Join(w.root, dir)
		err = errors.Join(err, os.MkdirAll(at, 0o755), unix.Mount("disk", at, "tmpfs", 0, "mode=0755"))
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	}
	if err != nil {
		t.Fatal(err)
	}
}
