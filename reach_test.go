package flexnode

import (
	"go/types"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// load returns the packages of a pattern with their types, without tests.
func load(t *testing.T, pattern string) []*packages.Package {
	t.Helper()
	list, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedImports | packages.NeedTypes | packages.NeedSyntax |
			packages.NeedTypesInfo | packages.NeedExportFile,
	}, pattern)
	if err != nil {
		t.Fatal(err)
	}
	if packages.PrintErrors(list) > 0 || len(list) == 0 {
		t.Fatalf("cannot load %s", pattern)
	}
	return list
}

// reach returns, for each type with methods of its own, how many methods its receiver reaches: its
// own, promoted ones, and those of the types of its fields, where these are types of the packages
// below root.
func reach(list []*packages.Package, root string) map[string]int {
	reached := map[string]int{}
	for _, p := range list {
		for _, name := range p.Types.Scope().Names() {
			object, ok := p.Types.Scope().Lookup(name).(*types.TypeName)
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
			reached[p.PkgPath+"."+name] = len(all)
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
func imported(list []*packages.Package) map[string]int {
	count := map[string]int{}
	for _, p := range list {
		count[p.PkgPath] = 0
		for path := range p.Imports {
			if strings.HasPrefix(path, module) {
				count[p.PkgPath]++
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
