// Package notice collects the licences of what is linked into a program, for all that it is
// published in: packages, the image, and the release that install.sh takes without apt.
package notice

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"

	"github.com/Azure/AKSFlexNode/packaging"
)

// linked is a Go module, or Go's standard library, with the directories of those of its packages
// that are linked into a program.
type linked struct {
	name, root string
	dirs       []string
}

// Of returns the licences of all that is linked into a program, this project's too: those at the
// top of each module, and those beside and above each of its packages. It asks Go itself for the
// packages, as they were built, and compares them with what the program says of itself. It is the
// same for the same program.
func Of(ctx context.Context, program string) ([]byte, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("cannot tell what %s is made of: %w", program, err)
	}
	modules, err := modulesOf(ctx, info)
	if err != nil {
		return nil, fmt.Errorf("cannot collect the licences of %s: %w", filepath.Base(program), err)
	}
	by := map[string][]string{} // by the text of a licence, whose it is
	for _, m := range modules {
		texts, err := m.licences()
		if err != nil {
			return nil, fmt.Errorf("cannot collect the licences of %s: %w", filepath.Base(program), err)
		}
		for _, file := range slices.Sorted(maps.Keys(texts)) {
			by[texts[file]] = append(by[texts[file]], m.name+", "+file)
		}
	}
	return write(filepath.Base(program), by), nil
}

func write(program string, by map[string][]string) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "What is linked into %s, with its licences. "+
		"`go mod download MODULE@VERSION` fetches\nthe source of a module.\n", program)
	texts := slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Or(cmp.Compare(by[a][0], by[b][0]), cmp.Compare(a, b))
	})
	for _, text := range texts {
		fmt.Fprintf(&out, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(by[text], "\n"), text)
	}
	return out.Bytes()
}

// modulesOf returns what is linked into a program: Go, and the modules.
func modulesOf(ctx context.Context, info *buildinfo.BuildInfo) ([]linked, error) {
	source, err := packaging.Source(info.Main.Path)
	if err != nil {
		return nil, err
	}
	golang, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("cannot find Go: %w", err)
	}
	config := packages.Config{Context: ctx, Dir: source, Env: os.Environ(),
		Mode: packages.NeedFiles | packages.NeedImports | packages.NeedDeps | packages.NeedModule}
	for _, s := range info.Settings {
		if slices.Contains([]string{"GOOS", "GOARCH", "CGO_ENABLED"}, s.Key) {
			config.Env = append(config.Env, s.Key+"="+s.Value)
		}
	}
	roots, err := packages.Load(&config, info.Path)
	if err != nil {
		return nil, err
	}
	by := map[string]*linked{}
	packages.Visit(roots, nil, func(p *packages.Package) {
		if len(p.Errors) > 0 {
			err = p.Errors[0]
		}
		l := linked{name: "Go " + strings.TrimPrefix(info.GoVersion, "go"),
			root: strings.TrimSpace(string(golang))}
		if m := p.Module; m != nil {
			l = linked{name: strings.TrimSuffix(m.Path+"@"+m.Version, "@"), root: m.Dir}
		}
		if by[l.name] == nil {
			by[l.name] = &l
		}
		by[l.name].dirs = append(by[l.name].dirs, p.Dir)
	})
	for _, m := range info.Deps {
		if by[m.Path+"@"+m.Version] == nil && m.Replace == nil {
			return nil, fmt.Errorf("%s is in the program, and this project does not link it", m.Path)
		}
	}
	var list []linked
	for _, name := range slices.Sorted(maps.Keys(by)) {
		list = append(list, *by[name])
	}
	return list, err
}

// licence is how files are called that hold the terms of a module.
var licence = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|copyright)([._-].*)?$`)

// licences are the texts of a module, by the name of the file below its top.
func (m linked) licences() (map[string]string, error) {
	texts := map[string]string{}
	for _, dir := range m.dirs {
		for ; len(dir) >= len(m.root); dir = filepath.Dir(dir) {
			if err := m.read(dir, texts); err != nil {
				return nil, err
			}
		}
	}
	if len(texts) == 0 {
		return nil, fmt.Errorf("%s has no licence", m.name)
	}
	return texts, nil
}

// read reads the terms in one directory.
func (m linked) read(dir string, texts map[string]string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() || !licence.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		file := filepath.Join(dir, e.Name())
		name, err := filepath.Rel(m.root, file)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		texts[name] = strings.TrimSpace(strings.ToValidUTF8(string(text), "?"))
	}
	return nil
}
