package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

// The program that knows which packages there are, and how long dpkg may take.
const dpkgQuery, dpkgLimit = "dpkg-query", 15 * time.Minute

// observePackage asks dpkg. A program of the package's name is as good as the package.
func (h *Host) observePackage(ctx context.Context, name string) (state.Resource, error) {
	p := state.Package{Name: name, State: state.PackageAbsent}
	out, err := h.ask(ctx, toolLimit,
		dpkgQuery, "--show", "--showformat=${db:Status-Status} ${Version}", name)
	// dpkg-query exits with 1 when it knows no such package (dpkg-query(1)).
	var exit interface{ ExitCode() int }
	switch unknown := errors.As(err, &exit) && exit.ExitCode() == 1; {
	case err == nil:
		status, version, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
		p.State, p.Version = cmp.Or(packageStates[status], state.PackageUnfinished), version
	case !unknown && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("cannot observe package %s: %w", name, err)
	}
	if p.State != state.PackageAbsent && p.State != state.PackageRemoved {
		return p, nil
	}
	for _, dir := range []string{"/usr/bin", "/usr/local/bin", "/opt/" + name + "/bin"} {
		if info, err := os.Stat(h.path(filepath.Join(dir, name))); err == nil && !info.IsDir() {
			return state.Package{Name: name, State: state.PackageInstalled}, nil
		}
	}
	return p, nil
}

// packageStates are dpkg's words for the states (db:Status-Status); others are unfinished.
var packageStates = map[string]state.PackageState{
	"installed": state.PackageInstalled, "not-installed": state.PackageAbsent,
	"config-files": state.PackageRemoved,
}

// setPackage installs or removes one package, and nothing else: dpkg neither brings what a package
// depends on nor removes what depends on it. An installation that fails is taken back, as far as to
// the configuration of a package that was removed before.
func (h *Host) setPackage(ctx context.Context, from state.Resource, to state.Package) error {
	var err error
	switch to.State {
	case state.PackageInstalled:
		was, _ := from.(state.Package)
		err = h.installPackage(ctx, to.Name, was.State == state.PackageRemoved)
	case state.PackageRemoved:
		err = h.dpkg(ctx, "--remove", "--force-remove-reinstreq", to.Name)
	default:
		err = h.dpkg(ctx, "--purge", "--force-remove-reinstreq", to.Name)
	}
	if err != nil {
		return fmt.Errorf("cannot %s: %w", state.Describe(state.Change{To: to}), err)
	}
	return nil
}

func (h *Host) installPackage(ctx context.Context, name string, configured bool) error {
	file, err := h.packageFile(name)
	if err != nil {
		return err
	}
	err = h.dpkg(ctx, "--install", "--force-confdef", "--force-confold", file)
	if err == nil {
		return os.Remove(file) // it may be large
	}
	back, left := "--purge", "nothing of it is left"
	if configured {
		back, left = "--remove", "its configuration is left as it was"
	}
	return errors.Join(fmt.Errorf("%w; %s. If it depends on other packages, install those and run "+
		"this again", err, left), h.dpkg(ctx, back, "--force-remove-reinstreq", name))
}

func (h *Host) packageFile(name string) (string, error) {
	found, err := filepath.Glob(filepath.Join(h.path(h.PackageDir), name+"_*.deb"))
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("internal error: %d files of it in %s", len(found), h.PackageDir)
	}
	if err != nil {
		return "", err
	}
	return found[0], nil
}

// dpkg runs dpkg while no other process installs or removes packages. It is not interrupted: half
// an installation is worse than a late end. So it is in a scope of its own: systemd kills what is
// left in the agent's unit when the agent has stopped. No service but the package's own is
// restarted, and no question is asked.
func (h *Host) dpkg(ctx context.Context, args ...string) error {
	lock, err := h.lockPackages(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	argv := []string{"env", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_SUSPEND=1",
		"DPKG_FRONTEND_LOCKED=true"}
	if _, err := os.Stat(h.path("/run/systemd/system")); err == nil {
		argv = append(argv, "systemd-run", "--quiet", "--scope", "--collect")
	}
	_, err = h.Run(context.WithoutCancel(ctx), dpkgLimit, nil, append(append(argv, "dpkg"), args...)...)
	return err
}

// Where package managers keep each other out (dpkg's frontend locking protocol): who holds the
// first lock runs dpkg, which takes the second one itself.
const frontendLock, databaseLock = "/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock"

// lockPackages waits until no other process changes packages, and keeps them out until it is closed.
func (h *Host) lockPackages(ctx context.Context) (*os.File, error) {
	bounded, cancel := context.WithTimeout(ctx, cmp.Or(h.PackageWait, 5*time.Minute))
	defer cancel()
	frontend, err := h.lockFile(bounded, frontendLock)
	if err != nil {
		return nil, err
	}
	database, err := h.lockFile(bounded, databaseLock)
	if err != nil {
		frontend.Close()
		return nil, err
	}
	database.Close() // dpkg's own
	return frontend, nil
}

func (h *Host) lockFile(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(h.path(path), os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the packages of this machine: %w", err)
	}
	for said := false; ; said = true {
		lock := unix.Flock_t{Type: unix.F_WRLCK}
		err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &lock)
		if err == nil {
			return f, nil
		}
		if except(err, unix.EAGAIN, unix.EACCES) != nil {
			f.Close()
			return nil, fmt.Errorf("cannot lock %s: %w", path, err)
		}
		if !said && h.Log != nil {
			h.Log.Info("waiting for another package manager")
		}
		h.beat()
		if !wait.Sleep(ctx, time.Second) {
			f.Close()
			return nil, fmt.Errorf("another package manager is at work (`fuser %s` shows it); run this "+
				"again when it has ended: %w", path, ctx.Err())
		}
	}
}

// packages reads from dpkg's records (dpkg(1), /var/lib/dpkg/status) what can go wrong with
// packages under a node. A machine without dpkg has none.
func (h *Host) packages(x *Examination) {
	text, _ := h.ReadFile("/var/lib/dpkg/status")
	for stanza := range strings.SplitSeq(string(text), "\n\n") {
		name, words := "", []string(nil) // of Status: what is wanted, an error, what it is
		for line := range strings.Lines(stanza) {
			if v, ok := strings.CutPrefix(line, "Package: "); ok {
				name = strings.TrimSpace(v)
			} else if v, ok := strings.CutPrefix(line, "Status: "); ok {
				words = strings.Fields(v)
			}
		}
		if len(words) != 3 {
			continue
		}
		held, is := words[0] == "hold", words[2]
		switch {
		case is == "not-installed" || is == "config-files":
		// Only a trigger of another package may be awaited, which is done with that.
		case words[1] != "ok" || is != "installed" && !strings.HasPrefix(is, "triggers-"):
			x.Unfinished = append(x.Unfinished, name)
		case held && name == "aks-flex-node":
			x.Held = append(x.Held, name)
		case !held && slices.Contains(runtimes, name):
			x.Upgradable = append(x.Upgradable, name)
		}
	}
}

// runtimes are the packages whose upgrade starts a container runtime or a kubelet again, or puts
// other programs of that name beside the node's.
var runtimes = []string{"containerd", "containerd.io", "cri-o", "docker-ce", "docker.io", "kubelet",
	"moby-containerd", "moby-engine"}
