package rawjson

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"testing"
)

// decode is what encoding/json makes of an object, and whether it is one.
func decode(text []byte) (map[string]any, bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var object map[string]any
	if d.Decode(&object) != nil || object == nil {
		return nil, false
	}
	_, err := d.Token()
	return object, err == io.EOF
}

// documents are what Decode is tried with first.
func documents(t testing.TB) []string {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"": nil, "a\"<": "\u2028é\\", "b": []any{true, false, -0.5, 1e300, []any{}, "x"},
		"c": map[string]any{"d": map[string]any{}, "e": 12345678901234567},
	})
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		string(text), "", "[]", "null", "{", "{}", "{} ", " {}", "{}x", "{}{}", `{"a":nul}`,
		`{"a":"\x"}`, `{}}`, `{"a":}`, `{"a":1x}`, `{"a":1{}}`, `{"a":1"b"}`, `{"a":-}`, `{"a":01}`,
		`{"a":1,}`, `{,}`, `{"a" : [ 1 , 2 ]}`, `{"a":1,"a":{"b":1},"a":{"c":2}}`,
		"{\"a\":\"\x01\"}", "{\"a\":\"\n\"}", "{\"\t\":1}", "{\"a\":\"\x7f\"}",
		"{\"a\":\"\xff\"}", `{"a":"\ud800"}`, `{"a":"\ud83d\ude00"}`, `{"a":1e999}`, `{"a":-0}`,
		`{"\u0061":1}`, `{"a":true false}`, `{"a":[1 2]}`, `{"a":[,]}`, `{"a"}`, `{a:1}`,
	}
}

// What is decoded is what encoding/json decodes, and what that refuses is refused.
func FuzzDecode(f *testing.F) {
	for _, text := range documents(f) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		want, object := decode(text)
		got, err := Decode(text)
		if (err == nil) != object || object && !reflect.DeepEqual(want, got) {
			t.Errorf("%q becomes %v, %v; encoding/json makes %v of it, %v", text, got, err, want,
				object)
		}
	})
}

// Of each value that encoding/json encodes the scanner finds the end, and of each part of one that
// it has none.
func TestValue(t *testing.T) {
	for _, of := range []any{
		nil, true, -1.5e300, "", `"\`, `a\"b\\`, "<ü>\x00", []any{}, []any{1, "]", nil},
		map[string]any{}, map[string]any{"a": []any{map[string]any{"}": "{"}}, "b,": 1},
	} {
		text, err := json.Marshal(of)
		if err != nil {
			t.Fatal(err)
		}
		s := NewScanner(text)
		if got := s.Value(); string(got) != string(text) || !s.Done() {
			t.Errorf("of %s it reads %s, lost: %v", text, got, s.Lost())
		}
		if text[0] != '{' && text[0] != '[' && text[0] != '"' {
			continue
		}
		for end := 1; end < len(text); end++ {
			s := NewScanner(text[:end])
			if s.Value(); !s.Lost() || s.Done() {
				t.Errorf("%s is a value", text[:end])
			}
		}
	}
}

func TestMembersAndItems(t *testing.T) {
	const list = `[true, "x"]`
	s := NewScanner([]byte(`{"a":1,"b": ` + list + `,"c\"":{}}`))
	var got []string
	s.Members(func(name []byte) bool {
		got = append(got, string(name))
		if s.Peek() == '[' {
			got = append(got, string(s.Before()))
			s.Items(func() { got = append(got, string(s.Value())) })
			got = append(got, string(s.After()))
		} else {
			got = append(got, string(s.Value()))
		}
		return true
	})
	want := []string{"a", "1", "b", `{"a":1,"b": `, "true", `"x"`, `,"c\"":{}}`, `c\"`, "{}"}
	if !reflect.DeepEqual(got, want) || !s.Done() {
		t.Errorf("%q, lost: %v", got, s.Lost())
	}
	for _, bad := range []string{"", "1", `{"a"}`, `{"a":1`, `{a:1}`, "{\"a\":\"\x01\"}"} {
		s := NewScanner([]byte(bad))
		if s.Members(func([]byte) bool { s.Value(); return true }); !s.Lost() {
			t.Errorf("%s is an object", bad)
		}
	}
}
