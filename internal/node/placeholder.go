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
		scalar := b.Program // of YAML, of which JSON is a subset
		if config.ShellWord(scalar) != scalar {
			scalar = indented(scalar, "")
		}
		values["command: "+thisProgram+"\n"] = "command: " + scalar + "\n"
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
