package node

import (
	"encoding/base64"

	"github.com/Azure/AKSFlexNode/internal/config"
)

// Placeholders stand for values of Bindings. No configured value may contain their brackets.
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
	values := map[string]string{
		thisServer:                b.Server,
		thisCA:                    b.CA,
		thisCABase64:              base64.StdEncoding.EncodeToString([]byte(b.CA)),
		thisProgram:               b.Program,
		thisToken:                 b.BootstrapToken.Reveal(),
		thisAdmin:                 b.AdminKubeconfig.Reveal(),
		thisPods4:                 b.pods(false),
		thisPods6:                 b.pods(true),
		`"` + thisPodRanges + `"`: ranges,
		`"` + thisPodRoutes + `"`: routes,
	}
	if b.Program != "" {
		values["command: "+thisProgram+"\n"] = "command: " + yamlWord(b.Program) + "\n"
		values["exec "+thisProgram+" "] = "exec " + config.ShellWord(b.Program) + " "
	}
	var pairs []string
	for place, value := range values {
		if value != "" {
			pairs = append(pairs, place, value)
		}
	}
	return pairs
}
