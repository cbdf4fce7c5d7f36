package rawjson

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

// What is decoded is what encoding/json decodes.
func TestDecode(t *testing.T) {
	text, err := json.Marshal(map[string]any{
		"": nil, "a\"<": "\u2028é\\", "b": []any{true, false, -0.5, 1e300, []any{}, "x"},
		"c": map[string]any{"d": map[string]any{}, "e": 12345678901234567},
	})
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var want map[string]any
	if err := d.Decode(&want); err != nil {
		t.Fatal(err)
	}
	if got, err := Decode(text); err != nil || !reflect.DeepEqual(want, got) {
		t.Errorf("%s becomes %v, %v", text, got, err)
	}
	for _, bad := range []string{"", "[]", "null", "{", `{"a":nul}`, `{"a":"\x"}`, `{}}`, `{"a":}`,
		`{"a":1x}`, `{"a":1{}}`, `{"a":1"b"}`, `{"a":-}`, `{"a":01}`} {
		if got, err := Decode([]byte(bad)); err == nil {
			t.Errorf("%s becomes %v", bad, got)
		}
	}
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
		s := &Scanner{Text: text}
		if got := s.Value(); string(got) != string(text) || s.Lost || s.At != len(text) {
			t.Errorf("of %s it reads %s, lost: %v", text, got, s.Lost)
		}
		if text[0] != '{' && text[0] != '[' && text[0] != '"' {
			continue
		}
		for end := 1; end < len(text); end++ {
			s := &Scanner{Text: text[:end]}
			if s.Value(); !s.Lost {
				t.Errorf("%s is a value", text[:end])
			}
		}
	}
}

func TestMembersAndItems(t *testing.T) {
	s := &Scanner{Text: []byte(`{"a":1,"b":[true,"x"],"c\"":{}}`)}
	var got []string
	s.Members(func(name []byte) bool {
		got = append(got, string(name))
		if s.Peek() == '[' {
			s.Items(func() { got = append(got, string(s.Value())) })
		} else {
			got = append(got, string(s.Value()))
		}
		return true
	})
	text, err := json.Marshal(got)
	if want := `["a","1","b","true","\"x\"","c\\\"","{}"]`; err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
	if s.Lost || s.At != len(s.Text) {
		t.Errorf("%+v", s)
	}
	for _, bad := range []string{"", "1", `{"a"}`, `{"a":1`, `{a:1}`} {
		s := &Scanner{Text: []byte(bad)}
		if s.Members(func([]byte) bool { s.Value(); return true }); !s.Lost {
			t.Errorf("%s is an object", bad)
		}
	}
}
