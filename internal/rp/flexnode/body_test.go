package flexnode

import (
	"strings"
	"testing"
)

// What is told to be plain has nothing wrong with its shape, and what callers mostly send is plain.
func TestPlainShapes(t *testing.T) {
	plain := []string{
		`{}`, ` {"a": [], "b": {"a": "A"}, "c": [{"a": 1}, {"a": -2.5}, null, true]} `,
		strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth),
		`{"properties":{"nodeConfig":{"labels":{"site.example/hall":"<3>","x":"\u00e4ö"}}}}`,
	}
	closer := []string{
		``, ` `, `x`, `{`, `{}{}`, `{} x`, `{"a":1,}`, `{"a":1,"A":2}`, `{"a":{"b":1,"c":[],"b":2}}`,
		`[{"b":1,"B":[]},{"c":2}]`, `{"a\u0062":1,"ab":2}`, `{"ö":1,"Ö":2}`, `{"K":1,"\u212a":2}`,
		`{"a":1e999}`, `{"a":123456789012345678}`, `{"a":01}`, `{1:2}`, "{\"a\":\"\x01\"}",
		strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1),
		`[` + strings.Repeat(`{"a":`, maxDepth) + `1` + strings.Repeat(`}`, maxDepth) + `]`,
	}
	for _, body := range plain {
		if !isPlainShape([]byte(body)) {
			t.Errorf("%s is not plain", body)
		}
	}
	for _, body := range closer {
		if isPlainShape([]byte(body)) {
			t.Errorf("%s is plain", body)
		}
	}
	g := generator(t)
	parts := []string{
		`{`, `}`, `[`, `]`, `,`, `:`, `"a":`, `"A":`, `"b":`, `"a"`, `"\u0061"`, ` `, `1`, `1e999`,
		`null`, `"k"`, `"\xff"`, `"\ud800"`, `{"a":1}`, `[1,2]`,
	}
	found := 0
	for range 200_000 {
		var body strings.Builder
		for range 1 + g.IntN(9) {
			body.WriteString(pick(g, parts...))
		}
		if text := []byte(body.String()); isPlainShape(text) {
			found++
			if err := readShape(text); err != nil {
				t.Fatalf("%s is told to be plain: %v", text, err)
			}
		}
	}
	if found < 1000 {
		t.Errorf("only %d bodies were plain", found)
	}
}
