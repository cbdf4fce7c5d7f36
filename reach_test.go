package flexnode

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// loaded is a package with its types, and the paths that it imports.
type loaded struct {
	*types.Package
	imports []string
}

// load returns the packages of a pattern, without tests.
func load(t *testing.T, pattern string) (list []loaded) {
	t.Helper()
	command := exec.Command("go", "list", "-export", "-deps",
		"-json=ImportPath,Dir,GoFiles,Imports,Export,DepOnly", pattern)
	out, err := command.Output()
	if err != nil {
		t.Fatalf("cannot load %s: %v", pattern, err)
	}
	exports, fset := map[string]string{}, token.NewFileSet()
	config := types.Config{Importer: importer.ForCompiler(fset, "gc",
		func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	for in := json.NewDecoder(bytes.NewReader(out)); in.More(); { // what a package imports comes first
		var p struct {
			ImportPath, Dir, Export string
			GoFiles, Imports        []string
			DepOnly                 bool
		}
		if err := in.Decode(&p); err != nil {
			t.Fatal(err)
		}
		if exports[p.ImportPath] = p.Export; p.DepOnly {
			continue
		}
		var files []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		checked, err := config.Check(p.ImportPath, fset, files, nil)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, loaded{checked, p.Imports})
	}
	return list
}

// reach returns, for each type with methods of its own, how many methods its receiver reaches: its
// own, promoted ones, and those of the types of its fields, where these are types of the packages
// below root.
func reach(list []loaded, root string) map[string]int {
	reached := map[string]int{}
	for _, p := range list {
		for _, name := range p.Scope().Names() {
			object, ok := p.Scope().Lookup(name).(*types.TypeName)
			if !ok || object.IsAlias() {
				continue
			}
			named := object.Type().(*types.Named)
			if named.NumMethods() == 0 {
				continue
			}
			all := map[types.Object]bool{}
			addMethods(all, named)
			if fields, ok := named.Underlying().(*types.Struct); ok {
				for field := range fields.Fields() {
					if of := below(field.Type(), root); of != nil {
						addMethods(all, of)
					}
				}
			}
			reached[p.Path()+"."+name] = len(all)
		}
	}
	return reached
}

// below returns a type, or that to which it points, if a package at or below root declares it.
func below(t types.Type, root string) *types.Named {
	if pointer, ok := t.(*types.Pointer); ok {
		t = pointer.Elem()
	}
	named, ok := types.Unalias(t).(*types.Named)
	if !ok || named.Obj().Pkg() == nil {
		return nil
	}
	if path := named.Obj().Pkg().Path(); path != root && !strings.HasPrefix(path, root+"/") {
		return nil
	}
	return named
}

// addMethods adds the methods of a pointer to a type, or of an interface.
func addMethods(all map[types.Object]bool, named *types.Named) {
	var receiver types.Type = types.NewPointer(named)
	if types.IsInterface(named) {
		receiver = named
	}
	for method := range types.NewMethodSet(receiver).Methods() {
		all[method.Obj()] = true
	}
}

// imported returns how many packages of ours each package imports.
func imported(list []loaded) map[string]int {
	count := map[string]int{}
	for _, p := range list {
		count[p.Path()] = 0
		for _, path := range p.imports {
			if strings.HasPrefix(path, module) {
				count[p.Path()]++
			}
		}
	}
	return count
}

// above returns the names whose numbers are above their limits, which are by name, "" for others.
func above(numbers, limits map[string]int) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		limit, ok := limits[name]
		if !ok {
			limit = limits[""]
		}
		if numbers[name] > limit {
			list = append(list, name)
		}
	}
	return list
}

// TestReachFindsGodObject: embedded and held types count, each method once, those of others not.
func TestReachFindsGodObject(t *testing.T) {
	const root = module + "testdata/reach"
	list := load(t, "./testdata/reach/...")
	reached := reach(list, root)
	want := map[string]int{
		root + "/saved.State": 4,
		root + "/run.Home":    1 + 4 + 2,
		root + "/run.Work":    1 + 1 + 4,
		root + "/run.Small":   1,
	}
	if !maps.Equal(reached, want) {
		t.Errorf("reached: %v, want %v", reached, want)
	}
	god := above(reached, map[string]int{"": 4})
	if !slices.Equal(god, []string{root + "/run.Home", root + "/run.Work"}) {
		t.Errorf("above 4: %v", god)
	}
	imports := imported(list)
	if !maps.Equal(imports, map[string]int{root + "/saved": 0, root + "/run": 1}) {
		t.Errorf("imports: %v", imports)
	}
	if got := above(imports, map[string]int{"": 0, root + "/run": 1}); got != nil {
		t.Errorf("within their limits: %v", got)
	}
}

// agentRoot is the agent, whose packages and receivers have limits.
const agentRoot = module + "internal/agent"

// TestReach holds the agent in parts that a reader can survey: how many methods a receiver reaches,
// and how many of our packages a package imports.
func TestReach(t *testing.T) {
	list := load(t, "./internal/agent/...")
	reached := reach(list, agentRoot)
	for _, name := range above(reached, map[string]int{"": 60}) {
		t.Errorf("%s reaches %d methods", name, reached[name])
	}
	imports := imported(list)
	limits := map[string]int{
		"": 10, agentRoot + "/change": 18, agentRoot + "/inspect": 14, agentRoot + "/service": 14,
	}
	for _, name := range above(imports, limits) {
		t.Errorf("%s imports %d packages", name, imports[name])
	}
}
