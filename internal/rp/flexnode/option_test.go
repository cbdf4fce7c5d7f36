package flexnode

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	apidoc "github.com/Azure/AKSFlexNode/docs/api"
)

// azOptions is the table of the az extension's options, which its _desired.py reads.
const azOptions = "../../../packaging/az/azext_aks_flex_node/options.json"

// withoutOption has the settings without a row in places.
var withoutOption = map[string]string{
	"azureAuth.method":                     "--auth-method",
	"upgradePolicy.paused":                 "the commands pause and resume",
	"azureAuth.arc.onboarding.principalId": "what enrols a machine is no identity of its node",
}

// groups has the headings of az for the options; the others are below Changes.
var groups = map[string]string{
	"azureAuth": "Authentication", "kubernetesAuth": "Authentication",
	"versions": "Node", "nodeConfig": "Node", "network": "Node",
}

// schema is a type of the API's document.
type schema struct {
	Ref        string `json:"$ref"`
	ReadOnly   bool
	Type       string
	Enum       []string
	Properties map[string]schema
}

// settingsOfAPI returns the schemas of the properties that an owner of a node sets, by path,
// including those with members of their own.
func settingsOfAPI(t *testing.T) map[string]schema {
	var doc struct{ Definitions map[string]schema }
	must(0, json.Unmarshal(apidoc.OpenAPI, &doc))
	all := map[string]schema{}
	var walk func(at string, s schema)
	walk = func(at string, s schema) {
		if s.Ref != "" {
			s = doc.Definitions[s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]]
		}
		all[at] = s
		for name, p := range s.Properties {
			if !p.ReadOnly {
				walk(strings.TrimPrefix(at+"."+name, "."), p)
			}
		}
	}
	walk("", doc.Definitions["FlexNodeConfigProperties"])
	delete(all, "")
	return all
}

// option is an option of az. Its type and values are those of the API.
type option struct {
	Places string   `json:"places"` // below properties
	Names  string   `json:"names"`
	Group  string   `json:"group"`
	Type   string   `json:"type"`
	Words  []string `json:"words,omitempty"`
	Help   string   `json:"help"`
}

// Every setting is in the reference of the API.
func TestSettingsAreDocumented(t *testing.T) {
	text := must(os.ReadFile("../../../docs/reference/api.md"))
	_, text, _ = bytes.Cut(text, []byte("\n## Properties\n"))
	for _, p := range places {
		name := p.resource[strings.LastIndex(p.resource, ".")+1:]
		if p.option == "" { // it has others below it
			continue
		}
		if !bytes.Contains(text, []byte("`"+name+"`")) && !bytes.Contains(text, []byte("."+name+"`")) {
			t.Errorf("docs/reference/api.md, Properties: say what %s is", p.resource)
		}
	}
}

// Every setting of a flex node has an option of az, and every option a setting.
func TestOptions(t *testing.T) {
	settings := settingsOfAPI(t)
	missing := maps.Clone(settings)
	options := map[string]option{}
	for _, p := range places {
		s, ok := settings[p.resource]
		if !ok {
			t.Errorf("the API has no %s: add it to api/typespec/main.tsp, and run make openapi",
				p.resource)
		}
		if p.option == "" {
			continue
		}
		maps.DeleteFunc(missing, func(at string, _ schema) bool {
			return at == p.resource || strings.HasPrefix(at, p.resource+".")
		})
		name, _, _ := strings.Cut(p.option, " ")
		key := strings.ReplaceAll(strings.TrimPrefix(name, "--"), "-", "_")
		o := options[key]
		top, _, _ := strings.Cut(p.resource, ".")
		options[key] = option{strings.TrimSpace(o.Places + " " + p.resource), p.option,
			cmp.Or(groups[top], "Changes"), s.Type, s.Enum, cmp.Or(o.Help, p.help)}
		if options[key].Help == "" {
			t.Errorf("%s has no help", name)
		}
	}
	for _, at := range slices.Sorted(maps.Keys(missing)) {
		if len(missing[at].Properties) == 0 && withoutOption[at] == "" {
			t.Errorf("%s has no option: add it to places", at)
		}
	}
	got := append(must(json.MarshalIndent(options, "", "  ")), '\n')
	if *update {
		must(0, os.WriteFile(azOptions, got, 0o644))
	}
	if diff := gocmp.Diff(string(must(os.ReadFile(azOptions))), string(got)); diff != "" {
		t.Errorf("az has other options (-want +got); run make golden:\n%s", diff)
	}
}
