// Package notice collects the licences of what is linked into a program, for all that it is
// published in: packages, the image, and the release that install.sh takes without apt.
package notice

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// linked is a Go module, or Go's standard library, with the directories of those of its packages
// that are linked into a program.
type linked struct {
	name, root string
	dirs       []string
}

// Of returns the licences of all that is linked into a program, this project's too: those at the
// top of each module, and those beside and above each of its packages. It asks Go itself for the
// packages, as they were built, and compares them with what the program says of itself, so it has
// to run within this project. It is the same for the same program.
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
		fmt.Fprintf(&out, "\n%s\n", strings.Repeat("=", 80))
		for _, whose := range by[text] {
			fmt.Fprintln(&out, whose)
		}
		fmt.Fprintf(&out, "\n%s\n", text)
	}
	return out.Bytes()
}

// listed is a package as `go list` shows it.
type listed struct {
	Dir, Root string
	Module    *struct {
		Path, Version, Dir string
		Main               bool
	}
}

// modulesOf are what is linked into a program: Go, and the modules.
func modulesOf(ctx context.Context, info *buildinfo.BuildInfo) ([]linked, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-json=Dir,Root,Module", info.Path)
	cmd.Env = os.Environ()
	for _, s := range info.Settings {
		if slices.Contains([]string{"GOOS", "GOARCH", "CGO_ENABLED"}, s.Key) {
			cmd.Env = append(cmd.Env, s.Key+"="+s.Value)
		}
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	by := map[string]*linked{}
	packages := json.NewDecoder(bytes.NewReader(out))
	for {
		var p listed
		if err := packages.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		name, root := "Go "+strings.TrimPrefix(info.GoVersion, "go"), p.Root
		if p.Module != nil {
			name, root = p.Module.Path+"@"+p.Module.Version, p.Module.Dir
		}
		if p.Module != nil && p.Module.Main {
			name = p.Module.Path
		}
		if by[name] == nil {
			by[name] = &linked{name: name, root: root}
		}
		by[name].dirs = append(by[name].dirs, p.Dir)
	}
	for _, module := range info.Deps {
		if by[module.Path+"@"+module.Version] == nil && module.Replace == nil {
			return nil, fmt.Errorf("%s is in the program, and this project does not link it", module.Path)
		}
	}
	var list []linked
	for _, name := range slices.Sorted(maps.Keys(by)) {
		list = append(list, *by[name])
	}
	return list, nil
}

// licence is how files are called that hold the terms of a module.
var licence = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|copyright)([._-].*)?$`)

// licences are the texts of a module, by the name of the file below its top.
func (m linked) licences() (map[string]string, error) {
	texts := map[string]string{}
	for _, dir := range m.dirs {
		for {
			if err := m.read(dir, texts); err != nil {
				return nil, err
			}
			above := filepath.Dir(dir)
			if dir == m.root || len(above) < len(m.root) {
				break
			}
			dir = above
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
