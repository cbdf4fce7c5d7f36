package change

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/arc"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// PackageDir is where the Arc agent's package is fetched to and installed from.
const PackageDir = saved.StateDir + "/packages"

// keepArc has the ledger forget the Arc agent that we have installed: it is to stay.
func keepArc(ctx context.Context, h *Home) error {
	return h.Engine.Journal.Save(ctx,
		h.Engine.Journal.Ledger().Forget(inspect.StandingArc(h.Node).Keys()...))
}

// installArc installs the Arc agent, where nobody has.
func installArc(ctx context.Context, w *work) error {
	plan, now, _, err := w.compare(ctx)
	if err != nil {
		return err
	}
	agent := slices.DeleteFunc(now, func(item state.Item) bool { return item.Step != state.Arc })
	if plan = plan.Only(agent.Keys()); len(plan) == 0 {
		return nil
	}
	return errors.Join(w.Engine.Apply(ctx, plan), removeAll(ctx, w.Home, PackageDir))
}

// wait blocks until what a resource is made of is on the machine.
func (w *work) wait(ctx context.Context, to state.Resource) error {
	p, ok := to.(state.Package)
	if !ok {
		return w.fetch.wait(ctx, to)
	}
	if p.State != state.PackageInstalled {
		return nil
	}
	seen, err := w.Agent.Machine.Facts(ctx, inspect.Query(w.Home.Node, w.config))
	if err != nil {
		return err
	}
	return fetchPackage(ctx, w, seen)
}

// fetchPackage puts the Arc agent's package where it is installed from: a file of the directory of
// artifacts, or from the first repository that has it and whose signature is right.
func fetchPackage(ctx context.Context, w *work, seen host.Facts) error {
	if err := emptyPackageDir(ctx, w); err != nil {
		return err
	}
	if file, err := packageFile(w.Home, w.config, seen); err != nil || file != "" {
		if err != nil {
			return err
		}
		link := state.Link{Path: path.Join(PackageDir, path.Base(file)), Target: file}
		return w.Agent.Machine.Set(ctx, state.Change{To: link}, nil)
	}
	repositories, err := repositories(w.Home, w.config, seen)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range repositories {
		w.view.doing("fetching the Arc agent's package from " + r.URL)
		err := download(ctx, w, r)
		if err == nil || ctx.Err() != nil {
			return err
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("cannot fetch the Arc agent's package; nothing was installed: %w; "+
		"docs/arc.md says which repository, key and file can be configured (azure.arc.package)",
		errors.Join(errs...))
}

// aptLimit bounds a run of apt.
const aptLimit = 10 * time.Minute

// download has apt fetch and prove the package.
func download(ctx context.Context, w *work, r arc.Repository) error {
	if err := emptyPackageDir(ctx, w); err != nil {
		return err
	}
	var changes []state.Resource
	changes = append(changes, state.Dir{Path: path.Join(PackageDir, arc.EmptyDir), Mode: 0o700})
	for name, content := range r.Files(w.Path(PackageDir)) {
		changes = append(changes, state.NewFile(path.Join(PackageDir, name), 0o600, content))
	}
	for _, to := range changes {
		if err := w.Agent.Machine.Set(ctx, state.Change{To: to}, nil); err != nil {
			return err
		}
	}
	update, fetch := arc.Commands(w.Path(PackageDir))
	if _, err := w.Agent.Machine.Run(ctx, aptLimit, nil, update...); err != nil {
		return fmt.Errorf("%s: cannot read the repository, or it is not signed by the right key: %w",
			r.URL, err)
	}
	if _, err := w.Agent.Machine.Run(ctx, aptLimit, nil, fetch...); err != nil {
		return fmt.Errorf("%s: it has no package %s, or a damaged one: %w", r.URL, arc.Package, err)
	}
	return nil
}

func emptyPackageDir(ctx context.Context, w *work) error {
	if err := removeAll(ctx, w.Home, PackageDir); err != nil {
		return err
	}
	return w.Agent.Machine.Set(ctx, state.Change{To: state.Dir{Path: PackageDir, Mode: 0o700}}, nil)
}

// packageFile is a file of the Arc agent's package in the directory of artifacts, "" when there is
// none. Nothing proves it but that only root can have put it there.
func packageFile(h *Home, c config.Config, seen host.Facts) (string, error) {
	dir := c.Artifacts.Directory
	if dir == "" {
		return "", nil
	}
	files, err := filepath.Glob(path.Join(dir, arc.Package+"_*_"+seen.Arch+".deb"))
	switch {
	case err != nil || len(files) == 0:
		return "", err
	case len(files) == 1:
		return files[0], safe(h, files[0])
	}
	return "", fmt.Errorf("cannot tell which package of the Arc agent to install: there are %s; "+
		"keep one", strings.Join(files, " and "))
}

// repositories are those that the Arc agent's package may come from, in the order in which they are
// tried.
func repositories(h *Home, c config.Config, seen host.Facts) ([]arc.Repository, error) {
	base, known := arc.RepositoryFor(seen.OSID, seen.OSVersion)
	urls := []string{base.URL}
	if p := c.Azure.Arc.Package; p != nil {
		if p.URL != "" {
			base.URL, urls, known = p.URL, []string{p.URL}, true
		}
		if p.Suite != "" {
			base.Suite = p.Suite
		}
		if p.KeyFile != "" {
			key, err := p.Key()
			if err == nil {
				err = safe(h, p.KeyFile)
			}
			if err != nil {
				return nil, fmt.Errorf("cannot use azure.arc.package.keyFile: %w", err)
			}
			base.Key = string(key)
		}
	}
	if !known || base.Suite == "" {
		return nil, fmt.Errorf("cannot install the Arc agent: no package repository of it is known for "+
			"%s %s; set azure.arc.package.url and suite, or install azcmagent yourself",
			seen.OSID, seen.OSVersion)
	}
	urls = places(c.Artifacts, urls[0], c.Azure.Arc.Package != nil && c.Azure.Arc.Package.URL != "")
	list := make([]arc.Repository, len(urls))
	for i, url := range urls {
		list[i] = base
		list[i].URL = url
		if base.Key == "" {
			list[i].Key = arc.Key
		}
		if r, err := http.NewRequest(http.MethodGet, url, nil); err == nil && r.URL.Host != "" {
			if proxy, err := c.ProxyFunc()(r); err == nil && proxy != nil {
				list[i].Proxy = proxy.String()
			}
		}
	}
	return list, nil
}

// places are where a repository may be: in the directory of artifacts, else at the mirrors and at
// last upstream. One of the user's own is nowhere else.
func places(a config.Artifacts, url string, own bool) []string {
	at := strings.TrimPrefix(strings.TrimPrefix(url, "https://"), "http://")
	switch {
	case own:
		return []string{url}
	case a.Directory != "":
		return []string{"file:" + path.Join(a.Directory, at)}
	}
	var list []string
	for _, mirror := range append([]string{a.Mirror}, a.Mirrors...) {
		if mirror != "" {
			list = append(list, mirror+"/"+at)
		}
	}
	return append(list, url)
}

// safe refuses a file that somebody else than root can change.
func safe(h *Home, file string) error {
	if h.Trusted != nil {
		return h.Trusted(file)
	}
	return config.Trusted(file)
}

// arcReady finds out, without touching anything, whether there is an Arc agent, or can be one.
func arcReady(ctx context.Context, h *Home, c config.Config, seen host.Facts) error {
	err := newArc(h, c, nil).Check(ctx)
	if !errors.Is(err, arc.ErrNotInstalled) {
		return err
	}
	file, err := packageFile(h, c, seen)
	if err == nil && file == "" {
		_, err = repositories(h, c, seen)
	}
	return err
}
