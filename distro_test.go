package flexnode

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/distro"
)

// distroName matches a word of a distribution's that is no word of English, nor the name of a
// program on every machine: a path, a unit, a package such as docker-ce. A parameter ends it.
var distroName = regexp.MustCompile(`^(?:/?[a-z][a-z0-9]*[-./][a-z0-9./-]*|dpkg|apt)`)

// distroNames returns the names in the strings of a value.
func distroNames(v reflect.Value) (names []string) {
	switch v.Kind() {
	case reflect.String:
		for word := range strings.FieldsSeq(v.String()) {
			if name := distroName.FindString(word); name != "" {
				names = append(names, name)
			}
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			names = append(names, distroNames(field)...)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			names = append(names, distroNames(v.Index(i))...)
		}
	}
	return names
}

// Only internal/distro has names of distributions, and what simulates or tests them.
func TestOnlyDistroNamesDistributions(t *testing.T) {
	names := append(distroNames(reflect.ValueOf(distro.Known())), distro.Release,
		distro.VendorRelease, distro.Needrestart)
	slices.Sort(names)
	names = slices.Compact(names)
	for _, name := range []string{"apt", "apt-mark", "docker.service", "/run/reboot-required",
		"/var/lib/dpkg/status", "linux-modules-extra-", "docker-ce"} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not among the names %q", name, names)
		}
	}
	for i, name := range names {
		names[i] = regexp.QuoteMeta(name)
	}
	used := regexp.MustCompile(`(?:^|[^\w./-])(` + strings.Join(names, "|") + `)(?:$|[^\w-])`)
	registry := "internal/policy/check.go: docker.io" // a host, not the package
	for _, file := range files(t) {
		top, _, _ := strings.Cut(file, "/")
		if path.Ext(file) != ".go" || strings.HasSuffix(path.Dir(file), "test") ||
			strings.HasSuffix(file, "_test.go") || !slices.Contains([]string{"cmd", "internal"}, top) ||
			strings.HasPrefix(file, "internal/distro/") || strings.HasPrefix(file, "internal/azuresim/") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				s, _ := strconv.Unquote(literal.Value)
				for _, found := range used.FindAllStringSubmatch(s, -1) {
					if file+": "+found[1] != registry {
						t.Errorf("%s names %s: take it from internal/distro", file, found[1])
					}
				}
			}
			return true
		})
	}
}
