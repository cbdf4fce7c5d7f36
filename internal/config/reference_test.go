package config

import (
	"bytes"
	"cmp"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"text/template"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/release"
)

var update = flag.Bool("update", false,
	"write the golden files and docs/reference/configuration.md")

// setting is one line of the reference.
type setting struct {
	// pattern is the path, rule the name of the setting's rule.
	pattern, typ, doc, rule string
}

// reference lists every setting in the order of the structs, with the comment of its field.
func reference(t *testing.T) []setting {
	t.Helper()
	return typeSettings(t, fieldComments(t), reflect.TypeFor[Config](), setting{})
}

func typeSettings(
	t *testing.T, comments map[string]string, typ reflect.Type, at setting,
) []setting {
	var list []setting
	below := func(typ reflect.Type, at setting) {
		list = append(list, typeSettings(t, comments, typ, at)...)
	}
	switch typ.Kind() {
	case reflect.Pointer:
		below(typ.Elem(), at)
	case reflect.Struct:
		for i, f := range fields(typ) {
			next := typ.Field(i)
			doc := comments[typ.Name()+"."+next.Name]
			if doc == "" && kindOfType(next.Type) != anObject {
				t.Errorf("%s.%s has no comment", typ.Name(), next.Name)
			}
			to := setting{pattern: member(at.pattern, f.name), doc: doc, rule: f.must}
			if next.Type.Kind() == reflect.Map {
				list = append(list, setting{to.pattern, "object", doc, f.keys})
				to.pattern, to.doc = to.pattern+".*", ""
				below(next.Type.Elem(), to)
				continue
			}
			below(next.Type, to)
		}
	case reflect.Slice:
		at.pattern += ".*"
		below(typ.Elem(), at)
	case reflect.Bool:
		at.typ = "boolean"
		list = append(list, at)
	case reflect.Int, reflect.Int64:
		at.typ = "number"
		list = append(list, at)
	default:
		at.typ = "string"
		list = append(list, at)
	}
	return list
}

// fieldComments maps Type.Field to the field's comment without the field's name.
func fieldComments(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	comments := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		structure, ok := spec.Type.(*ast.StructType)
		if !ok {
			return true
		}
		for _, f := range structure.Fields.List {
			words := strings.Fields(f.Doc.Text())
			if len(words) > 2 && words[0] == f.Names[0].Name && words[1] != "of" {
				words = words[1:]
				if slices.Contains([]string{"is", "are"}, words[0]) {
					words = words[1:]
				}
			}
			text := strings.TrimSuffix(strings.Join(words, " "), ".")
			if text != "" {
				comments[spec.Name.Name+"."+f.Names[0].Name] = strings.ToUpper(text[:1]) + text[1:]
			}
		}
		return false
	})
	return comments
}

// shownDefaults maps the path of a setting to its default as JSON shows it.
func shownDefaults() map[string]string {
	c := defaults()
	c.Azure.Arc = &Arc{}
	c.complete(Host{})
	// These are filled in where they are used (package leftopen).
	c.Network = Network{Firewall: FirewallCheck, Metadata: MetadataBlock}
	c.Agent.UpgradePolicy = UpgradePolicy{Drain: DrainMinor, Deadline: DefaultDeadline,
		DrainOptions: DrainOptions{DeleteEmptyDir: new(true)}}
	shown := map[string]string{}
	for _, l := range leaves(&c) {
		if l.value.Kind() == reflect.Map {
			continue
		}
		if text, json := l.text(), l.shown(); text != "" && text != "0" {
			shown[l.path()] = "`" + json + "`"
		}
	}
	shown["continuousMonitoring"] = "`false`"
	shown["kubernetes.version"] = "the cluster's"
	shown["containerd.version"] = "by `kubernetes.version`"
	shown["runc.version"] = "by `containerd.version`"
	shown["azure.kubeletCredential"] = "`\"certificate\"`"
	return shown
}

type row struct{ Path, Type, Default, Allowed, Meaning string }

type section struct {
	Name     string
	Settings []row
}

func sections(t *testing.T) []section {
	escape := strings.NewReplacer("|", "\\|", "<", "&lt;", ">", "&gt;")
	defaults := shownDefaults()
	var list []section
	for _, s := range reference(t) {
		top, _, _ := strings.Cut(s.pattern, ".")
		if len(list) == 0 || list[len(list)-1].Name != top {
			list = append(list, section{Name: top})
		}
		r := row{
			Path: s.pattern, Type: s.typ, Default: cmp.Or(defaults[s.pattern], "-"),
			Allowed: escape.Replace(rules[s.rule].allowed), Meaning: escape.Replace(s.doc),
		}
		if s.typ == "object" {
			r.Allowed = "every name: " + r.Allowed
		}
		if owner, ok := strings.CutSuffix(s.pattern, ".*"); ok && s.doc != "" {
			r.Path, r.Type = owner+"[N]", "list of strings"
		}
		r.Path = strings.ReplaceAll(r.Path, "*", "NAME")
		if s.typ == "boolean" {
			r.Allowed = "`true` or `false`"
		}
		last := &list[len(list)-1]
		last.Settings = append(last.Settings, r)
	}
	return list
}

type aliasRow struct{ Name, Means, Note string }

type example struct{ Title, Text string }

func examples(t *testing.T) []example {
	t.Helper()
	files, err := filepath.Glob("../../packaging/examples/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no examples", err)
	}
	var list []example
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		title := strings.ReplaceAll(name[2:], "-", " ")
		list = append(list, example{strings.ToUpper(title[:1]) + title[1:], string(data)})
	}
	return list
}

func TestReference(t *testing.T) {
	var names []aliasRow
	for _, a := range aliases {
		r := aliasRow{Name: a.name, Means: a.setting}
		if a.convert != nil && a.kind == aBoolean {
			on, off := a.convert("true"), a.convert("false")
			r.Note = ": `true` is `" + on + "`, `false` is `" + off + "`"
		} else if a.convert != nil {
			r.Note = ": `host` is `" + a.convert("host") + "`"
		}
		names = append(names, r)
	}
	page := template.Must(template.ParseFiles("testdata/configuration.md.tmpl"))
	var text bytes.Buffer
	err := page.Execute(&text, map[string]any{
		"Sections": sections(t), "Aliases": names, "Examples": examples(t),
		"Oldest": release.OldestMinor(), "Newest": release.NewestMinor(),
	})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "../../docs/reference/configuration.md", bytes.TrimSpace(text.Bytes()))
}

// golden compares text with a file, or writes the file.
func golden(t *testing.T, file string, text []byte) {
	t.Helper()
	text = append(bytes.Clone(text), '\n')
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), string(text)); diff != "" {
		t.Errorf("%s is out of date (go test ./internal/config -update):\n%s", file, diff)
	}
}

// TestExamples holds that every example in the documentation is a valid configuration.
func TestExamples(t *testing.T) {
	ca := certificate(t, true)
	for _, e := range examples(t) {
		text := strings.ReplaceAll(e.Text, "BASE64-OF-THE-CA-IN-PEM", ca)
		if read, err := Parse([]byte(text), testHost()); err != nil || len(read.Warnings) > 0 {
			t.Errorf("%s: %v %v", e.Title, err, read.Warnings)
		}
	}
}
