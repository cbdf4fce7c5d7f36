// Package notice collects the licences of the code linked into a program, for packages, the image,
// and the release that install.sh installs without apt.
package notice

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// Of returns the licences of all code linked into a program, including this project's: those in the
// root of each module, and those in and above the directory of each package. It gets the packages
// from the go command, as they were built, and compares them with the program's build information.
// The result is the same for the same program.
func Of(ctx context.Context, program string) (text []byte, err error) {
	var linked modules
	info, err := buildinfo.ReadFile(program)
	if err == nil {
		linked, err = modulesOf(ctx, info)
	}
	if err == nil {
		text, err = linked.notice(filepath.Base(program))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot collect the licences of %s: %w", program, err)
	}
	return text, nil
}

// modules holds the licences of Go modules, and of Go's standard library, by module and by file
// relative to the module's root.
type modules map[string]map[string]string

// notice returns each licence text once, under the names of all modules with it.
func (m modules) notice(program string) ([]byte, error) {
	by := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if len(m[name]) == 0 {
			return nil, fmt.Errorf("%s has no licence", name)
		}
		for _, file := range slices.Sorted(maps.Keys(m[name])) {
			by[m[name][file]] = append(by[m[name][file]], name+", "+file)
		}
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "What is linked into %s, with its licences. "+
		"`go mod download MODULE@VERSION` fetches\nthe source of a module.\n", program)
	for _, text := range slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Compare(by[a][0], by[b][0])
	}) {
		fmt.Fprintf(&out, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(by[text], "\n"), text)
	}
	return out.Bytes(), nil
}

// modulesOf returns the licences of Go and of the modules linked into a program.
func modulesOf(ctx context.Context, info *buildinfo.BuildInfo) (modules, error) {
	source, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}",
		info.Main.Path).Output()
	if err != nil {
		return nil, fmt.Errorf("cannot find the sources: %w", err)
	}
	config := packages.Config{Context: ctx, Dir: strings.TrimSpace(string(source)), Env: os.Environ(),
		Mode: packages.NeedFiles | packages.NeedImports | packages.NeedDeps | packages.NeedModule}
	for _, s := range info.Settings {
		if slices.Contains([]string{"GOOS", "GOARCH", "CGO_ENABLED"}, s.Key) {
			config.Env = append(config.Env, s.Key+"="+s.Value)
		}
	}
	roots, err := packages.Load(&config, info.Path)
	found := modules{}
	packages.Visit(roots, nil, func(p *packages.Package) {
		for _, problem := range p.Errors {
			err = errors.Join(err, problem)
		}
		name := "Go " + strings.TrimPrefix(info.GoVersion, "go")
		root := strings.TrimSuffix(p.Dir, "/src/"+p.ID)
		if m := p.Module; m != nil {
			name, root = strings.TrimSuffix(m.Path+"@"+m.Version, "@"), m.Dir
		}
		err = errors.Join(err, found.add(name, root, p.Dir))
	})
	for _, m := range info.Deps {
		if found[m.Path+"@"+m.Version] == nil && m.Replace == nil {
			err = errors.Join(err,
				fmt.Errorf("%s is in the program, and this project does not link it", m.Path))
		}
	}
	return found, err
}

// licence matches the names of licence files.
var licence = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|copyright)([._-].*)?$`)

// add adds the licences in a package's directory and those above it, up to the module's root.
func (m modules) add(name, root, dir string) error {
	if m[name] == nil {
		m[name] = map[string]string{}
	}
	for ; len(dir) >= len(root); dir = filepath.Dir(dir) {
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			file := filepath.Join(dir, e.Name())
			below := strings.TrimPrefix(file, root+"/")
			if e.IsDir() || !licence.MatchString(e.Name()) || filepath.Ext(file) == ".go" ||
				m[name][below] != "" {
				continue
			}
			text, problem := os.ReadFile(file)
			err = errors.Join(err, problem)
			m[name][below] = strings.TrimSpace(strings.ToValidUTF8(string(text), "?"))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
