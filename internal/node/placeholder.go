package node

import (
	"encoding/base64"
	"strings"
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
		{thisPodRanges, podRanges(b.PodCIDRs)},
		{thisPodRoutes, podRoutes(b.PodCIDRs)},
	} {
		if v.text != "" {
			known = append(known, v)
		}
	}
	return known
}

// contexts are the texts around each placeholder. Only there Unbind takes a value for a binding: a
// proxy may have an address that begins as the API server's.
var contexts = [...]struct {
	before      string
	placeholder placeholder
	after       string
}{
	{"server: ", thisServer, "\n"},
	{"--apiserver-override=", thisServer, "?"},
	{"certificate-authority-data: ", thisCABase64, "\n"},
	{"command: ", thisProgram, "\n"},
	{"exec ", thisProgram, " token"},
	{"token: ", thisToken, "\n"},
	{`"ranges": `, thisPodRanges, ","},
	{`"routes": `, thisPodRoutes, ","},
}

// Unbind is the reverse of Bind for the content of one file: values become placeholders again. It
// is for a node that a release without placeholders has made.
func Unbind(content string, b Bindings) string {
	if b.CA != "" && content == b.CA {
		return string(thisCA)
	}
	var pairs []string
	for _, v := range b.values() {
		for _, c := range contexts {
			if c.placeholder == v.placeholder {
				pairs = append(pairs,
					c.before+v.text+c.after, c.before+string(c.placeholder)+c.after)
			}
		}
	}
	return strings.NewReplacer(pairs...).Replace(content)
}
