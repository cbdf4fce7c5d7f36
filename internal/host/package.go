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

	"github.com/Azure/AKSFlexNode/internal/distro"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

func (h *Host) distro() distro.Distro {
	d, _ := distro.Find(h.settings(OSRelease, distro.VendorRelease)["ID"])
	return d
}

// Rivals returns the units of other container runtimes and kubelets, which break a node.
func (h *Host) Rivals() []string { return h.distro().Rivals }

// observePackage asks the package manager. A program of that name also counts.
func (h *Host) observePackage(ctx context.Context, name string) (state.Resource, error) {
	p := state.Package{Name: name, State: state.PackageAbsent}
	out, err := h.ask(ctx, toolLimit, append(h.distro().Manager.Show, name)...)
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

// packageStates maps dpkg's states (db:Status-Status); others are unfinished.
var packageStates = map[string]state.PackageState{
	"installed": state.PackageInstalled, "not-installed": state.PackageAbsent,
	"config-files": state.PackageRemoved,
}

// setPackage installs or removes one package and nothing else: neither its dependencies nor the
// packages that depend on it. A failed installation is undone, except that the configuration of a
// previously removed package may stay.
func (h *Host) setPackage(ctx context.Context, from state.Resource, to state.Package) error {
	manager := h.distro().Manager
	lock, err := h.lockPackages(ctx)
	if err == nil {
		defer lock.Close()
	}
	switch {
	case err != nil:
	case to.State == state.PackageInstalled:
		was, _ := from.(state.Package)
		err = h.installPackage(ctx, to.Name, was.State == state.PackageRemoved)
	case to.State == state.PackageRemoved:
		err = h.manage(ctx, manager.Remove, to.Name)
	default:
		err = h.manage(ctx, manager.Purge, to.Name)
	}
	if err != nil {
		return fmt.Errorf("cannot %s: %w", state.Describe(state.Change{To: to}), err)
	}
	return nil
}

func (h *Host) installPackage(ctx context.Context, name string, configured bool) error {
	manager := h.distro().Manager
	found, _ := filepath.Glob(filepath.Join(h.path(h.PackageDir), name+"_*"+manager.Suffix))
	if len(found) != 1 {
		return fmt.Errorf("internal error: %d files of it in %s", len(found), h.PackageDir)
	}
	err := h.manage(ctx, manager.Install, found[0])
	if err == nil {
		return os.Remove(found[0]) // it may be large
	}
	back, left := manager.Purge, "nothing of it is left"
	if configured {
		back, left = manager.Remove, "its configuration is left as it was"
	}
	return errors.Join(fmt.Errorf("%w; %s. If it depends on other packages, install those and run "+
		"this again", err, left), h.manage(ctx, back, name))
}

// manage runs a command of the package manager under the caller's lock (lockPackages). It is not
// interrupted: half an installation is worse than a late end. It has a scope of its own, since
// systemd kills the processes left in the agent's unit when the agent stops. It restarts no
// services but the package's own and asks no questions.
func (h *Host) manage(ctx context.Context, command []string, what string) error {
	argv := append([]string{"env"}, h.distro().Manager.Environment...)
	if h.exists("/run/systemd/system") {
		argv = append(argv, "systemd-run", "--quiet", "--scope", "--collect")
	}
	argv = append(append(argv, command...), what)
	_, err := h.Run(context.WithoutCancel(ctx), 15*time.Minute, nil, argv...)
	return err
}

// lockPackages waits until no other process changes packages, and locks them until it is closed.
func (h *Host) lockPackages(ctx context.Context) (*os.File, error) {
	bounded, cancel := context.WithTimeout(ctx, cmp.Or(h.PackageWait, 5*time.Minute))
	defer cancel()
	locks := h.distro().Manager.Locks
	frontend, err := h.lockFile(bounded, locks[0])
	if err != nil {
		return nil, err
	}
	database, err := h.lockFile(bounded, locks[1])
	if err != nil {
		frontend.Close()
		return nil, err
	}
	database.Close() // the package manager takes this lock itself
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
		holder := lockHolder(f)
		if !said {
			h.Log.Info("waiting for another package manager", "holder", holder)
		}
		h.beat()
		if !wait.Sleep(ctx, time.Second) {
			f.Close()
			return nil, fmt.Errorf("another package manager is running (%s); run this again when it has "+
				"finished: %w", holder, ctx.Err())
		}
	}
}

func lockHolder(f *os.File) string {
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil || lock.Pid <= 0 {
		return "unknown"
	}
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", lock.Pid)) // the process may have ended
	return strings.TrimSpace(fmt.Sprintf("process %d %s", lock.Pid, name))
}

// packages reads from dpkg's records (dpkg(1), /var/lib/dpkg/status) the packages that may cause
// trouble for a node. A machine without dpkg has none.
func (h *Host) packages(x *Examination) {
	system := h.distro()
	text, _ := h.ReadFile(system.Manager.Database)
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
		// Only a trigger of another package may be pending; it runs when that package is done.
		case words[1] != "ok" || is != "installed" && !strings.HasPrefix(is, "triggers-"):
			x.Unfinished = append(x.Unfinished, name)
		case held && name == "aks-flex-node":
			x.Held = append(x.Held, name)
		case !held && slices.Contains(system.Runtimes, name):
			x.Upgradable = append(x.Upgradable, name)
		}
	}
}
