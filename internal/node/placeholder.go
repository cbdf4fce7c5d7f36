package node

import (
	"encoding/base64"
	"encoding/json"

	"github.com/Azure/AKSFlexNode/internal/config"
)

// placeholder stands in rendered contents for a value of Bindings. No configured value can be one:
// none may hold the brackets.
type placeholder string

// The last two are JSON strings, so that a network configuration is JSON before and after.
const (
	thisServer    placeholder = "⟦server⟧"
	thisCA        placeholder = "⟦ca⟧"
	thisCABase64  placeholder = "⟦ca-base64⟧"
	thisProgram   placeholder = "⟦program⟧"
	thisToken     placeholder = "⟦bootstrap-token⟧"
	thisAdmin     placeholder = "⟦admin-kubeconfig⟧"
	thisPods4     placeholder = "⟦pods-ipv4⟧"
	thisPods6     placeholder = "⟦pods-ipv6⟧"
	thisPodRanges placeholder = `"⟦pod-ranges⟧"`
	thisPodRoutes placeholder = `"⟦pod-routes⟧"`
)

// quotedPlaces are the texts around a placeholder whose value is quoted there.
var quotedPlaces = [...]struct {
	before      string
	placeholder placeholder
	after       string
	quoted      func(string) string
}{
	{"command: ", thisProgram, "\n", yamlWord},
	{"exec ", thisProgram, " token", config.ShellWord},
}

// yamlWord is a path as a scalar of YAML, of which JSON is a part.
func yamlWord(path string) string {
	if config.ShellWord(path) == path {
		return path
	}
	quoted, err := json.Marshal(path)
	if err != nil {
		panic("internal error: " + err.Error()) // a string can always be written
	}
	return string(quoted)
}

// pairs replaces the placeholders that have a value: quoted in quotedPlaces, else as they are.
func (b Bindings) pairs() []string {
	ranges, routes := podAddresses(b.PodCIDRs)
	var quoted, plain []string
	for _, v := range [...]struct {
		placeholder placeholder
		text        string
	}{
		{thisServer, b.Server},
		{thisCA, b.CA},
		{thisCABase64, base64.StdEncoding.EncodeToString([]byte(b.CA))},
		{thisProgram, b.Program},
		{thisToken, b.BootstrapToken.Reveal()},
		{thisAdmin, b.AdminKubeconfig.Reveal()},
		{thisPods4, b.pods(false)},
		{thisPods6, b.pods(true)},
		{thisPodRanges, ranges},
		{thisPodRoutes, routes},
	} {
		if v.text == "" {
			continue
		}
		for _, c := range quotedPlaces {
			if c.placeholder == v.placeholder {
				quoted = append(quoted,
					c.before+string(c.placeholder)+c.after, c.before+c.quoted(v.text)+c.after)
			}
		}
		plain = append(plain, string(v.placeholder), v.text)
	}
	return append(quoted, plain...)
}
