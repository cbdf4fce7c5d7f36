package arc

import (
	"cmp"
	"context"
	_ "embed" // the key
	"errors"
	"fmt"
	"net/http"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/distro"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// aptLimit bounds a run of apt, which itself gives up a server that sends nothing.
const aptLimit = time.Hour

// Download fetches the Arc agent's package to the place from which it is installed.
type Download struct {
	Machine Machine
	// Arch is Debian's name of the architecture, ID and Version are from os-release(5).
	Arch, ID, Version string
	// Make creates or changes a file, link or directory.
	Make func(ctx context.Context, to state.Resource) error
	// Dir is the directory for the package, as a resource of the machine; Path is its path here.
	Dir, Path string
	Clear     func(ctx context.Context) error // removes Dir with its contents
	Trusted   func(file string) error         // refuses a file that others than root can change
	Doing     func(text string)               // shows the current activity
}

// Fetch takes the package from the directory of artifacts, else from the first repository that has
// it with the right signature. It changes only Dir.
func (d Download) Fetch(ctx context.Context, c config.Config) error {
	if err := d.empty(ctx); err != nil {
		return err
	}
	file, err := d.file(c)
	if err != nil {
		return err
	}
	if file != "" {
		return d.Make(ctx, state.Link{Path: path.Join(d.Dir, path.Base(file)), Target: file})
	}
	list, err := d.repositories(c)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range list {
		d.Doing("fetching the Arc agent's package from " + r.URL)
		err := d.from(ctx, r)
		if err == nil || ctx.Err() != nil {
			return err
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("cannot fetch the Arc agent's package; nothing was installed: %w; "+
		"docs/how-to/azure-arc.md says which repository, key and file can be configured "+
		"(azure.arc.package)", errors.Join(errs...))
}

// Check returns an error if there is no known place to fetch the package from. It changes nothing.
func (d Download) Check(c config.Config) error {
	file, err := d.file(c)
	if err == nil && file == "" {
		_, err = d.repositories(c)
	}
	return err
}

func (d Download) from(ctx context.Context, r distro.Source) error {
	if err := d.empty(ctx); err != nil {
		return err
	}
	changes := []state.Resource{state.Dir{Path: path.Join(d.Dir, distro.EmptyDir), Mode: 0o700}}
	for name, content := range r.Files(d.Path) {
		changes = append(changes, state.NewFile(path.Join(d.Dir, name), 0o600, content))
	}
	for _, to := range changes {
		if err := d.Make(ctx, to); err != nil {
			return err
		}
	}
	update, fetch := r.Commands(d.Path)
	if _, err := d.Machine.Run(ctx, aptLimit, nil, update...); err != nil {
		return fmt.Errorf("%s: cannot read the repository, or it is not signed by the right key: %w",
			r.URL, err)
	}
	if _, err := d.Machine.Run(ctx, aptLimit, nil, fetch...); err != nil {
		return fmt.Errorf("%s: it has no package %s, or a damaged one: %w", r.URL, r.Package, err)
	}
	files, err := filepath.Glob(filepath.Join(d.Path, Package+"_*.deb"))
	for _, file := range files {
		err = errors.Join(err, checkVersion(file))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", r.URL, err)
	}
	return nil
}

func (d Download) empty(ctx context.Context) error {
	if err := d.Clear(ctx); err != nil {
		return err
	}
	return d.Make(ctx, state.Dir{Path: d.Dir, Mode: 0o700})
}

// file returns the package in the directory of artifacts, or "". It must be trusted.
func (d Download) file(c config.Config) (string, error) {
	dir := c.Artifacts.Directory
	if dir == "" {
		return "", nil
	}
	files, err := filepath.Glob(path.Join(dir, Package+"_*_"+d.Arch+".deb"))
	switch {
	case err != nil || len(files) == 0:
		return "", err
	case len(files) == 1:
		return files[0], d.Trusted(files[0])
	}
	return "", fmt.Errorf("cannot choose a package of the Arc agent to install: found %s; keep one",
		strings.Join(files, " and "))
}

// repositories returns the repositories that may have the package, in the order of trying them.
func (d Download) repositories(c config.Config) ([]distro.Source, error) {
	system, is := distro.Find(d.ID)
	suite, known := system.Suites[d.Version]
	known = known && is
	base := distro.Source{Package: Package, Suite: suite, Key: Key,
		URL: upstream + d.ID + "/" + d.Version + "/prod"}
	p := cmp.Or(c.Azure.Arc.Package, &config.ArcPackage{})
	if p.URL != "" {
		base.URL, known = p.URL, true
	}
	base.Suite = cmp.Or(p.Suite, base.Suite)
	if p.KeyFile != "" {
		key, err := p.Key()
		if err == nil {
			err = d.Trusted(p.KeyFile)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot use azure.arc.package.keyFile: %w", err)
		}
		base.Key = string(key)
	}
	if !known || base.Suite == "" {
		return nil, fmt.Errorf("cannot install the Arc agent: no package repository of it is known for "+
			"%s %s; set azure.arc.package.url and suite, or install azcmagent yourself",
			d.ID, d.Version)
	}
	var list []distro.Source
	for _, url := range places(c.Artifacts, base.URL, p.URL != "") {
		r := base
		r.URL = url
		if request, err := http.NewRequest(http.MethodGet, url, nil); err == nil && request.Host != "" {
			if proxy, err := c.ProxyFunc()(request); err == nil && proxy != nil {
				r.Proxy = proxy.String()
			}
		}
		list = append(list, r)
	}
	return list, nil
}

// places returns the possible places of a repository: in the directory of artifacts, else at the
// mirrors and finally upstream. A configured repository has only its own URL.
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

// Package is the name of the Arc agent's package in every distribution.
const Package = "azcmagent"

// leastMajor and leastMinor are the oldest version of the package to install from a repository:
// older ones let an attacker on an adjacent network become root (CVE-2026-47632 of July 2026, fixed
// in 1.65). A signed old index must not bring one back.
const leastMajor, leastMinor = 1, 65

// checkVersion refuses a package that is too old, by the file name that apt gives it.
func checkVersion(file string) error {
	var major, minor int
	_, version, _ := strings.Cut(path.Base(file), "_")
	if n, err := fmt.Sscanf(version, "%d.%d", &major, &minor); n != 2 {
		return fmt.Errorf("cannot read the version of %s: %w", path.Base(file), err)
	}
	if major < leastMajor || major == leastMajor && minor < leastMinor {
		return fmt.Errorf("%s is older than %d.%d, which closes CVE-2026-47632", path.Base(file),
			leastMajor, leastMinor)
	}
	return nil
}

// Key is the key that signs Microsoft's package repositories
// (packages.microsoft.com/keys/microsoft.asc; "Linux package repository for Microsoft products").
//
//go:embed microsoft.asc
var Key string

const upstream = "https://packages.microsoft.com/"
