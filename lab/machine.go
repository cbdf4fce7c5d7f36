package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Machine is a Debian system with systemd in a container, with its own processes, network and
// mounts.
type Machine struct {
	Name string `json:"name"`
	IP   string `json:"ip"`
	// Root is its root directory on the host.
	Root string `json:"root"`
	// Disks are its data disks.
	Disks []Disk `json:"disks,omitempty"`
}

// Machines returns the lab's machines.
func (l *Lab) Machines() ([]Machine, error) {
	r, err := l.load()
	return r.Machines, err
}

// Machine returns the machine with a name.
func (l *Lab) Machine(name string) (Machine, error) {
	all, err := l.Machines()
	for _, m := range all {
		if m.Name == name {
			return m, err
		}
	}
	return Machine{},
		errors.Join(err, fmt.Errorf("cannot find machine %s: `flexlab node list` lists all", name))
}

// AddMachine creates a machine, with additional packages of the distribution, and boots it.
func (l *Lab) AddMachine(ctx context.Context, name string, packages ...string) (Machine, error) {
	return l.addMachine(ctx, name, packages, nil)
}

// AddMachineWithDisks creates a machine with data disks and boots it.
func (l *Lab) AddMachineWithDisks(
	ctx context.Context, name string, disks ...Disk,
) (Machine, error) {
	return l.addMachine(ctx, name, nil, disks)
}

func (l *Lab) addMachine(
	ctx context.Context, name string, packages []string, disks []Disk,
) (Machine, error) {
	m, err := l.newMachine(name, disks)
	if err != nil {
		return m, err
	}
	base, err := l.baseSystem(ctx, packages)
	if err != nil {
		return m, err
	}
	if err := copySystem(ctx, base, m.Root); err != nil {
		return m, fmt.Errorf("cannot create machine %s: %w", name, err)
	}
	if err := l.furnish(m); err != nil {
		return m, err
	}
	for i, d := range m.Disks {
		if err := l.makeDisk(ctx, m, i, d); err != nil {
			return m, err
		}
	}
	return m, l.StartMachine(ctx, m)
}

// newMachine chooses an address and records the machine.
func (l *Lab) newMachine(name string, disks []Disk) (Machine, error) {
	var m Machine
	var problem error
	err := l.change(func(r *record) {
		used := map[string]bool{}
		for _, other := range r.Machines {
			used[other.IP] = true
			if other.Name == name {
				problem = fmt.Errorf("cannot create machine %s: it exists already", name)
				return
			}
		}
		for i := 11; i < 250; i++ {
			ip := "10.77.0." + strconv.Itoa(i)
			if !used[ip] {
				m = Machine{Name: name, IP: ip, Root: l.path("machines", name, "root"), Disks: disks}
				r.Machines = append(r.Machines, m)
				return
			}
		}
	})
	return m, errors.Join(problem, err)
}

// furnish configures a machine's name, network, the lab's CA, kernel parameters, and an operator's
// settings: drop-ins for the image registry and for limits of the host, and the policy for the
// lab's provider.
func (l *Lab) furnish(m Machine) error {
	ca, err := l.CA()
	if err != nil {
		return err
	}
	files := map[string]string{
		"/etc/hostname":    m.Name + "\n",
		"/etc/resolv.conf": "nameserver " + HostIP + "\n",
		"/etc/hosts": "127.0.0.1 localhost\n" + m.IP + " " + m.Name +
			"\n",
		"/etc/machine-id": "",
		"/etc/systemd/network/10-host0.network": "[Match]\nName=host0\n[Network]\nAddress=" +
			m.IP + "/24\nGateway=" + HostIP + "\nIPv6AcceptRA=no\n" + l.network6(m),
		"/usr/local/share/ca-certificates/flexlab.crt":   string(ca),
		"/etc/containerd/conf.d/10-flexlab.toml":         containerdDropIn,
		"/etc/containerd/certs.d/_default/hosts.toml":    hostsTOML(),
		"/etc/systemd/journald.conf.d/flexlab.conf":      "[Journal]\nStorage=volatile\n",
		"/etc/systemd/system/flexlab-parameters.service": parametersUnit,
		udevDropInPath: udevDropIn,
		parametersPath: parametersScript(),
		"/etc/kubernetes/kubelet.conf.d/10-flexlab.conf": kubeletDropIn(),
		PolicyPath: machinePolicy,
	}
	for path, text := range files {
		full := filepath.Join(m.Root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return fmt.Errorf("cannot furnish %s: %w", m.Name, err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			return fmt.Errorf("cannot furnish %s: %w", m.Name, err)
		}
	}
	if err := os.Chmod(filepath.Join(m.Root, parametersPath), 0o755); err != nil {
		return fmt.Errorf("cannot furnish %s: %w", m.Name, err)
	}
	const units = "/etc/systemd/system/"
	links := map[string]string{
		units + "multi-user.target.wants/systemd-networkd.service": "/lib/systemd/system/" +
			"systemd-networkd.service",
		units + "systemd-networkd-wait-online.service":            "/dev/null",
		units + "sysinit.target.wants/flexlab-parameters.service": units + "flexlab-parameters.service",
	}
	for path, target := range links {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(m.Root, path)), 0o755); err != nil {
			return fmt.Errorf("cannot furnish %s: %w", m.Name, err)
		}
		_ = os.Remove(filepath.Join(m.Root, path)) // it exists if the machine is furnished again
		if err := os.Symlink(target, filepath.Join(m.Root, path)); err != nil {
			return fmt.Errorf("cannot furnish %s: %w", m.Name, err)
		}
	}
	bundle, err := os.OpenFile(filepath.Join(m.Root, "etc/ssl/certs/ca-certificates.crt"),
		os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("cannot furnish %s: %w", m.Name, err)
	}
	defer bundle.Close()
	_, err = bundle.Write(ca)
	return err
}

const udevDropInPath = "/etc/systemd/system/systemd-udev-trigger.service.d/flexlab.conf"

// udevDropIn lets udev handle the machine's links at boot, and not the host's hundreds of devices.
const udevDropIn = `[Service]
ExecStart=
ExecStart=-udevadm trigger --action=add --subsystem-match=net
`

// containerdDropIn supports a host whose kernel does not permit lowering OOM scores (no
// CAP_SYS_RESOURCE).
const containerdDropIn = `version = 3
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
`

// kubeletDropIn supports a host whose disk is nearly full, of which kubelet's defaults would
// reserve 15 %, and one with cgroup v1.
func kubeletDropIn() string {
	text := `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
evictionHard:
  memory.available: 100Mi
  nodefs.available: 1Gi
  nodefs.inodesFree: 1%
  imagefs.available: 1Gi
  imagefs.inodesFree: 1%
`
	if cgroupV1() {
		text += "failCgroupV1: false\n"
	}
	return text
}

// cgroupV1 reports whether the host has cgroup v1.
func cgroupV1() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err != nil
}

// legacyControllers are the cgroup v1 hierarchies in which a machine gets its own group.
var legacyControllers = []string{"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer",
	"blkio", "pids", "systemd", "unified"}

// StartMachine boots a machine and returns when its systemd has finished booting.
func (l *Lab) StartMachine(ctx context.Context, m Machine) error {
	if err := l.attachDisks(ctx, m); err != nil {
		return err
	}
	if err := l.background("machine-"+m.Name, l.Self, "launch", m.Name, m.Root); err != nil {
		return err
	}
	err := until(ctx, time.Minute, "machine "+m.Name+" to boot (see "+l.path("logs",
		"machine-"+m.Name+".log")+")", func() error {
		out, err := l.Output(ctx, m, "systemctl", "is-system-running", "--wait")
		if s := strings.TrimSpace(out); s == "running" || s == "degraded" {
			return nil
		}
		return errors.Join(err, fmt.Errorf("systemd says %q", strings.TrimSpace(out)))
	})
	if err != nil || !cgroupV1() {
		return err
	}
	return l.writableCgroups(ctx, m)
}

// writableCgroups makes the cgroup v1 hierarchies, which nspawn mounts read-only, writable for the
// machine's systemd and kubelet.
func (l *Lab) writableCgroups(ctx context.Context, m Machine) error {
	for _, dir := range append([]string{"/sys/fs/cgroup"},
		prefixed("/sys/fs/cgroup/", legacyControllers)...) {
		if _, err := os.Lstat(dir); err != nil {
			continue
		}
		if _, err := l.Output(ctx, m, "mount", "-o", "remount,bind,rw", dir); err != nil {
			return fmt.Errorf("cannot make %s writable: %w", dir, err)
		}
	}
	return nil
}

func prefixed(prefix string, names []string) []string {
	var list []string
	for _, n := range names {
		list = append(list, prefix+n)
	}
	return list
}

// Launch turns the process into a machine: it enters cgroups of the machine and executes
// systemd-nspawn.
func Launch(name, root string) error {
	if cgroupV1() {
		for _, controller := range legacyControllers {
			if err := enterCgroup(filepath.Join("/sys/fs/cgroup", controller), "flexlab-"+name); err != nil {
				return err
			}
		}
	}
	nspawn, err := exec.LookPath("systemd-nspawn")
	if err != nil {
		return fmt.Errorf("cannot launch %s: %w", name, err)
	}
	args := []string{
		"systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot", "--directory=" + root,
		"--machine=" + name, "--network-bridge=" + Bridge,
		"--capability=all", "--system-call-filter=add_key keyctl bpf perf_event_open", "--bind=/dev/kmsg",
		"--tmpfs=/tmp", "--link-journal=no", "--console=pipe",
		"--resolv-conf=off", "--timezone=off",
	}
	if tree, err := os.Readlink(boundTree(root)); err == nil {
		args = append(args, "--bind-ro="+tree+":/"+pythonTree)
	}
	return syscall.Exec(nspawn, args, append(os.Environ(), "SYSTEMD_NSPAWN_API_VFS_WRITABLE=1"))
}

func enterCgroup(hierarchy, name string) error {
	if _, err := os.Stat(hierarchy); err != nil {
		return nil
	}
	dir := filepath.Join(hierarchy, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot make a control group: %w", err)
	}
	if filepath.Base(hierarchy) == "cpuset" {
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(hierarchy, file))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, file), value, 0o644)
			}
			if err != nil {
				return fmt.Errorf("cannot set %s: %w", file, err)
			}
		}
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644)
}

// StopMachine shuts a machine down, as a power button does.
func (l *Lab) StopMachine(ctx context.Context, m Machine) error {
	p, ok := l.running("machine-" + m.Name)
	if !ok {
		return nil
	}
	if leader, err := leader(p.PID); err == nil {
		// SIGRTMIN+4: power off (systemd(1)); fails if it has just ended
		_ = unix.Kill(leader, syscall.Signal(34+4))
	}
	for range 300 {
		if !p.alive() {
			return removeCgroups("flexlab-" + m.Name)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return l.Kill(m) // its kubelet may wait longer for pods
}

// Kill stops a machine, as a power cut does.
func (l *Lab) Kill(m Machine) error {
	p, ok := l.running("machine-" + m.Name)
	if !ok {
		return nil
	}
	if leader, err := leader(p.PID); err == nil {
		_ = unix.Kill(leader, unix.SIGKILL) // the kernel kills all of its processes
	}
	return errors.Join(p.stop(), removeCgroups("flexlab-"+m.Name))
}

// RemoveMachine stops and deletes a machine.
func (l *Lab) RemoveMachine(ctx context.Context, name string) error {
	m, err := l.Machine(name)
	if err != nil {
		return err
	}
	if err := errors.Join(l.StopMachine(ctx, m), detachDisks(m)); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Dir(m.Root)); err != nil {
		return fmt.Errorf("cannot delete machine %s: %w", name, err)
	}
	return l.change(func(r *record) {
		r.Machines = slices.DeleteFunc(r.Machines, func(o Machine) bool { return o.Name == name })
		r.Processes = withoutProcess(r.Processes, "machine-"+name)
	})
}

// removeCgroups removes a machine's cgroups, from the leaves up.
func removeCgroups(name string) error {
	var errs []error
	dirs, err := filepath.Glob("/sys/fs/cgroup/*/" + name)
	errs = append(errs, err)
	for _, dir := range dirs {
		var all []string
		err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				all = append(all, p)
			}
			return nil
		})
		errs = append(errs, err)
		for _, sub := range slices.Backward(all) {
			for range 50 {
				if err = unix.Rmdir(sub); err == nil || errors.Is(err, unix.ENOENT) {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			if err != nil && !errors.Is(err, unix.ENOENT) {
				errs = append(errs, fmt.Errorf("cannot remove %s: %w", sub, err))
			}
		}
	}
	return errors.Join(errs...)
}

// leader returns the machine's init process: the only child of systemd-nspawn.
func leader(nspawn int) (int, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", nspawn, nspawn))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(data))
	if len(fields) == 0 {
		return 0, errors.New("it has not started its init yet")
	}
	return strconv.Atoi(fields[0])
}

// init returns the host's process ID of the machine's init process.
func (l *Lab) init(m Machine) (int, error) {
	p, ok := l.running("machine-" + m.Name)
	if !ok {
		return 0, errors.New("the machine is off")
	}
	return leader(p.PID)
}

// Network opens a machine's network namespace.
func (l *Lab) Network(m Machine) (*os.File, error) {
	pid, err := l.init(m)
	if err != nil {
		return nil, fmt.Errorf("cannot open the network of %s: %w", m.Name, err)
	}
	return os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
}

// Command returns a command that runs a program on a machine.
func (l *Lab) Command(ctx context.Context, m Machine, argv ...string) (*exec.Cmd, error) {
	pid, err := l.init(m)
	if err != nil {
		return nil, fmt.Errorf("cannot run %s in %s: %w", argv[0], m.Name, err)
	}
	if ip := net.ParseIP(m.IP); ip == nil {
		return nil, fmt.Errorf("internal error: machine %s has no address", m.Name)
	}
	args := []string{"-t", strconv.Itoa(pid), "-m", "-u", "-i", "-n", "-p", "-C", "--",
		"env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root",
		"LANG=C.UTF-8", "TERM=" + os.Getenv("TERM")}
	return exec.CommandContext(ctx, "nsenter", append(args, argv...)...), nil
}

// Output runs a program on a machine and returns its standard output.
func (l *Lab) Output(ctx context.Context, m Machine, argv ...string) (string, error) {
	cmd, err := l.Command(ctx, m, argv...)
	if err != nil {
		return "", err
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s in %s: %w: %s", strings.Join(argv, " "), m.Name, err,
			strings.TrimSpace(stderr.String()))
	}
	return string(out), err
}
