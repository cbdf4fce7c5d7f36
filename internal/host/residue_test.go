package host

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// What came since is removed, what was there before is not.
func TestSetResidue(t *testing.T) {
	h := testHost(t)
	k := h.Kernel.(*kernel)
	k.found = []string{"CNI-a", "CNI-b"}
	before := state.Residue{Kind: state.Chains, Match: "CNI-", Found: []string{"CNI-a"}}
	for _, c := range []state.Change{{To: before}, {To: before, Undo: true}} {
		if err := h.Set(t.Context(), c, nil); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(k.done, []string{"clear CNI-b"}) {
		t.Errorf("the kernel did %v", k.done)
	}
	k.broken = errors.New("broken")
	c := state.Change{To: before, Undo: true}
	if err := h.Set(t.Context(), c, nil); !errors.Is(err, k.broken) {
		t.Errorf("the error is %v", err)
	}
}

// A slice that is still loaded although its control group has gone is stopped and forgotten (R3).
func TestLoadedSlice(t *testing.T) {
	h := testHost(t)
	systemd := h.Systemd.(*units)
	systemd.known["kubepods.slice"] = UnitStatus{Active: "active"}
	before := state.Residue{Kind: state.Cgroups, Match: "kubepods.slice"}
	seen := state.Observed{before.Key(): observe(t, h, before.Key())}
	entry := state.Entry{
		Before: state.Record{Resource: before}, Ours: state.Record{Resource: before},
	}
	plan := state.Diff(nil, nil, seen, state.Ledger{Entries: []state.Entry{entry}})
	if len(plan) != 1 {
		t.Fatalf("the plan is %v", plan)
	}
	if err := h.Set(t.Context(), plan[0], nil); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(systemd.done, []string{"stop kubepods.slice", "reset kubepods.slice"}) {
		t.Errorf("systemd did %v", systemd.done)
	}
	systemd.broken = errors.New("broken")
	if _, err := h.Observe(t.Context(), before.Key()); !errors.Is(err, systemd.broken) {
		t.Errorf("the error is %v", err)
	}
}

// A kernel parameter that is on since is turned off; one that was on before is not.
func TestLeftSetting(t *testing.T) {
	for _, before := range []string{"0\n", "1\n"} {
		h := testHost(t)
		const file = "/proc/sys/net/ipv4/conf/all/route_localnet"
		write(t, h, file, before)
		r := state.Residue{Kind: state.Settings, Match: "net.ipv4.conf.all.route_localnet"}
		was := observe(t, h, r.Key())
		write(t, h, file, "1\n")
		if err := h.Set(t.Context(), state.Change{To: was, Undo: true}, nil); err != nil {
			t.Fatal(err)
		}
		if now := h.text(file); now != before[:1] {
			t.Errorf("it was %q and is %q", before, now)
		}
	}
}

// A file that came since is removed; one that was there before is not.
func TestLeftFile(t *testing.T) {
	for _, before := range []bool{false, true} {
		h := testHost(t)
		r := state.Residue{Kind: state.Files, Match: "/etc/left.conf"}
		if before {
			write(t, h, r.Match, "the owner's")
		}
		was := observe(t, h, r.Key())
		write(t, h, r.Match, "kubelet's")
		if err := h.Set(t.Context(), state.Change{To: was, Undo: true}, nil); err != nil {
			t.Fatal(err)
		}
		if now := observe(t, h, r.Key()).(state.Residue); (len(now.Found) == 1) != before {
			t.Errorf("there before: %v, now: %v", before, now.Found)
		}
	}
}

func TestInterfaces(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making interfaces needs root")
	}
	runtime.LockOSThread() // the thread ends with the test, and its network namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	add := exec.Command("ip", "link", "add", "cni0", "type", "bridge")
	if out, err := add.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r := state.Residue{Kind: state.Interfaces, Match: "cni0"}
	found, err := linux{}.Find(t.Context(), r)
	if err != nil || !slices.Equal(found, []string{"cni0"}) {
		t.Fatalf("found %v, %v", found, err)
	}
	if err := (linux{}).Clear(t.Context(), r, found); err != nil {
		t.Fatal(err)
	}
	if found, err := (linux{}).Find(t.Context(), r); err != nil || len(found) > 0 {
		t.Errorf("still there is %v, %v", found, err)
	}
	if err := (linux{}).Clear(t.Context(), r, found); err != nil {
		t.Errorf("nothing to remove is an error: %v", err)
	}
}

func TestCgroups(t *testing.T) {
	none := state.Residue{Kind: state.Cgroups, Match: "no-such.slice"}
	if found, err := (linux{}).Find(t.Context(), none); err != nil || len(found) > 0 {
		t.Errorf("found %v, %v", found, err)
	}
	dir := t.TempDir()
	inner := filepath.Join(dir, "a.slice", "b.slice")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	victim := exec.Command("sleep", "60")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	procs := filepath.Join(inner, "cgroup.procs")
	pid := []byte("1\n" + strconv.Itoa(victim.Process.Pid) + "\n")
	if err := os.WriteFile(procs, pid, 0o644); err != nil {
		t.Fatal(err)
	}
	all := []string{filepath.Join(dir, "a.slice")}
	if err := (linux{}).Clear(t.Context(), none, all); err == nil {
		t.Error("a group that cannot be removed is no error")
	}
	if err := victim.Wait(); err == nil {
		t.Error("the process was not killed")
	}
	if err := os.Remove(procs); err != nil {
		t.Fatal(err)
	}
	if err := (linux{}).Clear(t.Context(), none, all); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// Programs of a directory are asked to end, and killed when they do not.
func TestProcesses(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "bin", "sleep")
	copyProgram(t, sleep, program)
	r := state.Residue{Kind: state.Processes, Match: dir}
	running := exec.Command(program, "60")
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- running.Wait() }()
	found, err := linux{}.Find(t.Context(), r)
	if err != nil || !slices.Equal(found, []string{dir}) {
		t.Errorf("found %v, %v", found, err)
	}
	if err := (linux{}).Clear(t.Context(), r, found); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("the program was not ended")
	}
	if found, err := (linux{}).Find(t.Context(), r); err != nil || len(found) > 0 {
		t.Errorf("still there is %v, %v", found, err)
	}
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	source, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	file, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(file, source)
	if err = errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

// emptyNamespace mounts a network namespace without a process.
func emptyNamespace(t *testing.T, point string) {
	t.Helper()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if err := errors.Join(
		unix.Unshare(unix.CLONE_NEWNET),
		unix.Mount("/proc/thread-self/ns/net", point, "", unix.MS_BIND, ""),
		unix.Setns(int(own.Fd()), unix.CLONE_NEWNET),
	); err != nil {
		t.Fatal(err)
	}
}

// Mounts are found by a prefix, and removed with the empty files that they were mounted on; but not
// a network namespace with a process in it, such as that of a container of podman.
func TestMounts(t *testing.T) {
	ownMounts(t)
	h := testHost(t)
	for _, name := range []string{
		"/run/netns/cni-1", "/run/netns/cni-2", "/run/netns/cni-lived", "/run/netns/mine",
	} {
		write(t, h, name, "")
	}
	point, lived := h.path("/run/netns/cni-1"), h.path("/run/netns/cni-lived")
	emptyNamespace(t, point)
	if err := unix.Mount("/proc/self/ns/net", lived, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(lived, unix.MNT_DETACH)
	r := state.Residue{Kind: state.Mounts, Match: h.path("/run/netns/cni-")}
	found, err := linux{}.Find(t.Context(), r)
	if err != nil || !slices.Equal(found, []string{point, h.path("/run/netns/cni-2"), lived}) {
		t.Fatalf("found %v, %v", found, err)
	}
	if err := (linux{}).Clear(t.Context(), r, found); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(h.path("/run/netns")); err != nil || len(left) != 2 {
		t.Errorf("left are %v, %v", left, err)
	}
	if _, err := (linux{}).Find(t.Context(), state.Residue{Kind: "x"}); err == nil {
		t.Error("a residue of unknown kind was found")
	}
	if err := (linux{}).Clear(t.Context(), state.Residue{Kind: "x"}, nil); err == nil {
		t.Error("a residue of unknown kind was cleared")
	}
}
