package node

import (
	"encoding/base64"

	"github.com/Azure/AKSFlexNode/internal/config"
)

// Placeholders stand in rendered contents for values of Bindings. No configured value can equal
// one, since none may contain the brackets.
const (
	thisServer    = "⟦server⟧"
	thisCA        = "⟦ca⟧"
	thisCABase64  = "⟦ca-base64⟧"
	thisProgram   = "⟦program⟧"
	thisToken     = "⟦bootstrap-token⟧"
	thisAdmin     = "⟦admin-kubeconfig⟧"
	thisPods4     = "⟦pods-ipv4⟧"
	thisPods6     = "⟦pods-ipv6⟧"
	thisPodRanges = "⟦pod-ranges⟧" // a JSON string, like the next
	thisPodRoutes = "⟦pod-routes⟧"
)

// yamlWord returns a path as a YAML scalar; JSON is a subset of YAML.
func yamlWord(path string) string {
	if config.ShellWord(path) == path {
		return path
	}
	return indented(path, "")
}

// pairs returns the replacements of placeholders. The program is quoted for YAML and shells.
func (b Bindings) pairs() []string {
	ranges, routes := podAddresses(b.PodCIDRs)
	var pairs []string
	add := func(before, place, after, value string) {
		pairs = append(pairs, before+place+after, before+value+after)
	}
	if b.Program != "" {
		add("command: ", thisProgram, "\n", yamlWord(b.Program))
		add("exec ", thisProgram, " ", config.ShellWord(b.Program))
	}
	if ranges != "" {
		add("", `"`+thisPodRanges+`"`, "", ranges)
		add("", `"`+thisPodRoutes+`"`, "", routes)
	}
	for place, value := range map[string]string{
		thisServer:   b.Server,
		thisCA:       b.CA,
		thisCABase64: base64.StdEncoding.EncodeToString([]byte(b.CA)),
		thisProgram:  b.Program,
		thisToken:    b.BootstrapToken.Reveal(),
		thisAdmin:    b.AdminKubeconfig.Reveal(),
		thisPods4:    b.pods(false),
		thisPods6:    b.pods(true),
	} {
		if value != "" {
			add("", place, "", value)
		}
	}
	return pairs
}
