package node

import (
	"encoding/base64"
	"encoding/json"
	"strings"

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

// value is what a placeholder stands for.
type value struct {
	placeholder placeholder
	text        string
}

// values lists the placeholders that have a value.
func (b Bindings) values() []value {
	var known []value
	for _, v := range [...]value{
		{thisServer, b.Server},
		{thisCA, b.CA},
		{thisCABase64, base64.StdEncoding.EncodeToString([]byte(b.CA))},
		{thisProgram, b.Program},
		{thisToken, b.BootstrapToken.Reveal()},
		{thisAdmin, b.AdminKubeconfig.Reveal()},
		{thisPods4, b.pods(isIPv4)},
		{thisPods6, b.pods(isIPv6)},
		{thisPodRanges, podRanges(b.PodCIDRs)},
		{thisPodRoutes, podRoutes(b.PodCIDRs)},
	} {
		if v.text != "" {
			known = append(known, v)
		}
	}
	return known
}

// context is a text around a placeholder.
type context struct {
	before      string
	placeholder placeholder
	after       string
	// quoted is how a value is written there; nil is as it is.
	quoted func(string) string
}

// contexts are the texts around each placeholder. Only there Unbind takes a value for a binding: a
// proxy may have an address that begins as the API server's.
var contexts = [...]context{
	{"server: ", thisServer, "\n", nil},
	{"--apiserver-override=", thisServer, "?", nil},
	{"certificate-authority-data: ", thisCABase64, "\n", nil},
	{"command: ", thisProgram, "\n", yamlWord},
	{"exec ", thisProgram, " token", config.ShellWord},
	{"token: ", thisToken, "\n", nil},
	{"! -s ", thisPods4, " -j", nil},
	{"! -s ", thisPods6, " -j", nil},
	{"--comment own -d ", thisPods4, " -j", nil},
	{"--comment own -d ", thisPods6, " -j", nil},
	{`"ranges": `, thisPodRanges, ",", nil},
	{`"routes": `, thisPodRoutes, ",", nil},
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

// pairs replaces placeholders by values: where a context wants them quoted so, else as they are.
func (b Bindings) pairs() []string {
	var quoted, plain []string
	for _, v := range b.values() {
		for _, c := range contexts {
			if c.placeholder == v.placeholder && c.quoted != nil {
				quoted = append(quoted,
					c.before+string(c.placeholder)+c.after, c.before+c.quoted(v.text)+c.after)
			}
		}
		plain = append(plain, string(v.placeholder), v.text)
	}
	return append(quoted, plain...)
}

// Unbind is the reverse of Bind for the content of one file: values become placeholders again. It
// is for a node that a release without placeholders has made, which quoted nothing.
func Unbind(content string, b Bindings) string {
	if b.CA != "" && content == b.CA {
		return string(thisCA)
	}
	var pairs []string
	for _, v := range b.values() {
		for _, c := range contexts {
			if c.placeholder != v.placeholder {
				continue
			}
			if c.quoted != nil {
				pairs = append(pairs,
					c.before+c.quoted(v.text)+c.after, c.before+string(c.placeholder)+c.after)
			}
			pairs = append(pairs,
				c.before+v.text+c.after, c.before+string(c.placeholder)+c.after)
		}
	}
	return strings.NewReplacer(pairs...).Replace(content)
}
