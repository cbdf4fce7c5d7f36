package template

import (
	"fmt"
	"strings"
	"testing"
)

// limited returns templates that would use up memory or time, or exceed Resource Manager's limits.
func limited() map[string]string {
	var doubled, listed, diamond, resources, nested strings.Builder
	doubled.WriteString(`"v0": "0123456789"`)
	listed.WriteString(`"v0": ["0123456789"]`)
	for i := range 60 {
		fmt.Fprintf(&doubled, `, "v%d": "[concat(variables('v%d'), variables('v%d'))]"`, i+1, i, i)
		fmt.Fprintf(&listed, `, "v%d": ["[variables('v%d')]", "[variables('v%d')]"]`, i+1, i, i)
	}
	for i := range 801 {
		fmt.Fprintf(&resources, `{"type": "A.B/c", "apiVersion": "v", "name": "n%d"},`, i)
	}
	for i := range 60 {
		for _, side := range []string{"a", "b"} {
			on := ""
			if i > 0 {
				on = fmt.Sprintf(`"a%d", "b%d"`, i-1, i-1)
			}
			fmt.Fprintf(&diamond, `{"type": "A.B/c", "apiVersion": "v", "name": "%s%d", "dependsOn": [%s]},`,
				side, i, on)
		}
	}
	deep := 3000
	for range deep {
		nested.WriteString(`{"type": "A.B/c", "apiVersion": "v", "name": "n", "resources": [`)
	}
	list := func(b *strings.Builder) string {
		return `"resources": [` + strings.TrimSuffix(b.String(), ",") + `]`
	}
	grown := func(value string) string {
		long := strings.Repeat("x", 100_000)
		return `"variables": {"long": "` + long + `"}, "outputs": {"o": {"type": "string", "value": "[` +
			value + `]"}}`
	}
	return map[string]string{
		"doubled": `"variables": {` + doubled.String() +
			`}, "outputs": {"o": {"type": "string", "value": "[variables('v60')]"}}`,
		"listed": `"variables": {` + listed.String() +
			`}, "outputs": {"o": {"type": "array", "value": "[variables('v60')]"}}`,
		"diamond":   list(&diamond),
		"resources": list(&resources),
		"nested": `"resources": [` + strings.TrimSuffix(nested.String(), "[") + `[` +
			strings.Repeat("]}", deep) + `]`,
		"replaced": grown(`replace(variables('long'), 'x', variables('long'))`),
		"joined":   grown(`join(split(variables('long'), 'x'), variables('long'))`),
		"formatted": grown(`format('` + strings.Repeat("{0}", 5000) +
			`', variables('long'))`),
		"indexed": grown(`format('{9223372036854775807}', 'x')`),
	}
}

func TestLimits(t *testing.T) {
	const tooLarge = "is larger than"
	for name, want := range map[string]string{"doubled": tooLarge, "listed": tooLarge,
		"replaced": tooLarge, "joined": tooLarge, "formatted": tooLarge, "indexed": "is not a pattern",
		"diamond": "", "resources": "more than 800", "nested": "more than 800"} {
		p, err := bound(limited()[name], "")
		if err == nil {
			err = p.Check()
		}
		if want == "" && err != nil ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %.200v; want %s", name, err, want)
		}
	}
}

// Any template is either refused or planned.
func FuzzTemplate(f *testing.F) {
	for _, members := range limited() {
		if len(members) < 5000 {
			f.Add(members)
		}
	}
	f.Add(`"parameters": {"p": {"type": "int", "defaultValue": 1, "minValue": 1}}, "outputs": {"o": ` +
		`{"type": "array", "value": "[split(format('{0}', parameters('p')), ',')]", "condition": true}}`)
	f.Add(`"resources": [{"type": "A.B/c", "apiVersion": "v", "name": "n", "properties": ` +
		`{"a": "[reference('n').b[0]]", "c": "[union(createObject('a', 1), json('{}'))]"}}]`)
	f.Fuzz(func(t *testing.T, members string) {
		text, err := JSON(whole(members))
		if err != nil {
			return
		}
		read, err := Read(text)
		if err != nil {
			return
		}
		p, err := read.Bind(nil, here)
		if err != nil || p.Check() != nil {
			return
		}
		for _, r := range p.Resources {
			if _, err := p.Preview(r); err != nil {
				t.Errorf("%s: %v", members, err)
			}
		}
	})
}
