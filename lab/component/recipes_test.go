package component

import (
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

// TestRecipesAgreeWithModules checks that each program is a tool of its module in lab/components,
// that each tool is built, and that the module requires the version that the recipe stamps.
func TestRecipesAgreeWithModules(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	tools, built := map[string]bool{}, map[string]bool{}
	for _, c := range all {
		mod, err := modfile.Parse(c.String(), c.Sources["go.mod"], nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(mod.Tool) == 0 {
			t.Errorf("module of %s has no tools", c)
		}
		var mine []string
		for _, tool := range mod.Tool {
			mine = append(mine, tool.Path)
			tools[mod.Module.Mod.Path+" "+tool.Path] = true
		}
		for _, b := range c.Builds {
			for _, p := range b.Programs {
				built[mod.Module.Mod.Path+" "+p.Package] = true
				if !slices.Contains(mine, p.Package) {
					t.Errorf("%s: %s is not a tool of its module", c, p.Package)
				}
				if len(p.Version) == 0 || p.Prints == "" {
					t.Errorf("%s: the version of %s is not verified", c, p.Name)
				}
			}
		}
		release := releaseOf(t, mod, firstImport(t, c, c.Builds[0].Programs[0].Package))
		if release.Version != "v"+c.Version {
			t.Errorf("%s is built from %s", c, release)
		}
		if !strings.Contains(string(c.Sources["go.sum"]), release.Path+" "+release.Version+" h1:") {
			t.Errorf("go.sum of %s does not know %s", c, release)
		}
		for _, x := range c.Extras {
			if x.Module != release.Path {
				t.Errorf("%s: %s comes from %s, not from %s", c, x.Name, x.Module, release.Path)
			}
		}
	}
	for tool := range tools {
		if !built[tool] {
			t.Errorf("no recipe builds tool %s", tool)
		}
	}
}

// The chart is installed with the helm whose library checks it.
func TestHelmIsTheChecked(t *testing.T) {
	text, err := os.ReadFile("../../packaging/helm/tools/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c.Name != Helm {
			continue
		}
		if checked := releaseOf(t, mod, "helm.sh/helm/v3/cmd/helm"); checked.Version != "v"+c.Version {
			t.Errorf("the lab has %s, packaging/helm/tools %s", c, checked.Version)
		}
		return
	}
	t.Error("the lab has no helm")
}

// firstImport returns the upstream package of a program: the program itself, or the first import of
// a main.go in lab/components.
func firstImport(t *testing.T, c Component, program string) string {
	t.Helper()
	text, here := c.Sources[c.Name+"/main.go"]
	if !here {
		return program
	}
	file, err := parser.ParseFile(token.NewFileSet(), "main.go", text, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Trim(file.Imports[0].Path.Value, `"`)
}

// releaseOf returns the module of a package: the required one, or its replacement.
func releaseOf(t *testing.T, mod *modfile.File, pkg string) (found module.Version) {
	t.Helper()
	for _, r := range mod.Require {
		if (pkg == r.Mod.Path || strings.HasPrefix(pkg, r.Mod.Path+"/")) &&
			len(r.Mod.Path) > len(found.Path) {
			found = r.Mod
		}
	}
	for _, r := range mod.Replace {
		if r.Old.Path == found.Path {
			found = r.New
		}
	}
	return found
}

func TestComponentsDiffer(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, c := range all {
		key, err := c.key("go1.26.0 amd64")
		if err != nil {
			t.Fatal(err)
		}
		other, err := c.key("go1.26.1 amd64")
		if err != nil {
			t.Fatal(err)
		}
		if seen[key] || key == other {
			t.Errorf("key %s of %s is not its own, or does not depend on the compiler (%s)", key, c, other)
		}
		seen[key] = true
	}
}
