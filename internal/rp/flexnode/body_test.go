package flexnode

import (
	"strings"
	"testing"
)

func TestShapes(t *testing.T) {
	for _, body := range []string{
		`{}`, ` {"a": [], "b": {"a": "A"}, "c": [{"a": 1}, {"a": -2.5}, null, true]} `,
		strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth),
		`{"properties":{"nodeConfig":{"labels":{"site.example/hall":"<3>","x":"\u00e4ö"}}}}`,
		`{"a":123456789012345678}`,
	} {
		var into any
		if err := Decode([]byte(body), &into); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
	for _, body := range []string{
		``, ` `, `x`, `{`, `{}{}`, `{} x`, `{"a":1,}`, `{"a":1,"A":2}`, `{"a":{"b":1,"c":[],"b":2}}`,
		`[{"b":1,"B":[]},{"c":2}]`, `{"a\u0062":1,"ab":2}`, `{"ö":1,"Ö":2}`, `{"K":1,"\u212a":2}`,
		`{"a":1e999}`, `{"a":01}`, `{1:2}`, "{\"a\":\"\x01\"}",
		strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1),
		`[` + strings.Repeat(`{"a":`, maxDepth) + `1` + strings.Repeat(`}`, maxDepth) + `]`,
	} {
		var into any
		if err := Decode([]byte(body), &into); err == nil {
			t.Errorf("%s is taken", body)
		}
	}
}
