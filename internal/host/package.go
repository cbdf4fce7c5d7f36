package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// The program that knows which packages there are, and how long dpkg may take.
const (
	dpkgQuery = "dpkg-query"
	dpkgLimit = 15 * time.Minute
)

// observePackage asks dpkg. A program of the package's name that came without a package is as good
// as the package.
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

// packageStates are dpkg's words for the states (dpkg-query(1), db:Status-Status); any other is for
// an unfinished package.
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

// packageFile is the one file of a package that is to be installed.
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

// dpkg runs dpkg while nobody else installs or removes packages. It is not interrupted: half an
// installation is worse than a late end. No service but the package's own is restarted, and
// nobody is asked.
func (h *Host) dpkg(ctx context.Context, args ...string) error {
	release, err := h.lockPackages(ctx)
	if err != nil {
		return err
	}
	defer release()
	argv := []string{"env", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_SUSPEND=1",
		"DPKG_FRONTEND_LOCKED=true", "dpkg"}
	_, err = h.Run(context.WithoutCancel(ctx), dpkgLimit, nil, append(argv, args...)...)
	return err
}
