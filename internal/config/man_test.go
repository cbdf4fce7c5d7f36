package config

import (
	"html"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/pagetest"
)

// The manual page of the configuration has every setting, as docs/reference/configuration.md has.
func TestManualPage(t *testing.T) {
	p := pagetest.New("aks-flex-node-config.json", "5", "the configuration of aks-flex-node")
	p.Section("SYNOPSIS")
	p.Text("/etc/aks-flex-node/config.json")
	p.Section("DESCRIPTION")
	p.Text(`The configuration is one JSON file without comments. Names are case-sensitive; a name
that is not known, or is given twice, is an error. null and "" mean the same as leaving a setting
out. What can be set is listed by its path: node.labels.NAME stands for any name, and
node.taints[N] for any item of a list.

The cluster (azure.targetCluster.resourceId) and exactly one way to authenticate must be set:
azure.bootstrapToken, azure.servicePrincipal, azure.arc or azure.managedIdentity. All else has a
default, or is needed by one of these alone.

The file decides what root runs. It must belong to root, as must every directory above it, and
no other user may write to them. One that holds a secret must be readable by root alone (mode 600).

Check it with

  aks-flex-node config validate

which reports every problem at once, each with its path and what is allowed.`)
	plain := strings.NewReplacer("`", "", "\\|", "|")
	for _, s := range sections(t) {
		p.Section("SETTINGS BELOW " + strings.ToUpper(s.Name))
		for _, r := range s.Settings {
			text := "(" + r.Type
			if r.Default != "-" {
				text += ", default " + r.Default
			}
			text += ")"
			if r.Meaning != "" {
				text += " " + r.Meaning + "."
			}
			if r.Allowed != "" {
				text += " Must be " + r.Allowed + "."
			}
			p.Item(r.Path, html.UnescapeString(plain.Replace(text)))
		}
	}
	p.Section("OTHER NAMES")
	for _, a := range aliases {
		p.Item(a.name, "The same as "+a.setting+".")
	}
	p.Section("EXAMPLES")
	for _, e := range examples(t) {
		p.Subsection(e.Title)
		p.Literal(e.Text)
	}
	p.Section("SEE ALSO")
	p.Text("aks-flex-node(8)")
	p.Check(t, "../..", *update)
}
