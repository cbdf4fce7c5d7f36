package store

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// Rows are decoded like encoding/json does, and can be written again.
func FuzzDecodeInto(f *testing.F) {
	at := time.Date(2026, 11, 21, 10, 12, 40, 0, time.UTC)
	rows := append(sampleNodes(at), sampleStatus(at), benchNode(1), benchStatus(1),
		flexnode.Cluster{}, Credential{Node: "n", Issued: &at}, Member{})
	for _, row := range rows {
		text := string(must(json.Marshal(row)))
		for _, with := range []string{
			text, text + " ", text + "}", text[:len(text)/2], strings.ToUpper(text),
			strings.Replace(text, "{", `{"new":{"x":[1]},`, 1),
			strings.ReplaceAll(text, `"True"`, `null`), strings.ReplaceAll(text, "true", `"true"`),
			strings.ReplaceAll(text, `"a`, `"\u0061`), strings.ReplaceAll(text, "e", "\xff"),
			strings.ReplaceAll(text, "1", "1e1"), strings.ReplaceAll(text, "{", `{"maxPods":1,`),
			strings.Replace(text, "{", "{"+strings.Trim(text, "{}")+",", 1),
		} {
			f.Add([]byte(with))
		}
	}
	for _, text := range []string{"", "null", "[]", "{}", `"x"`, "1", "{\"\x00\":1}"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, row []byte) {
		decodesAlike[flexnode.Node](t, row)
		decodesAlike[flexnode.Status](t, row)
		decodesAlike[flexnode.Cluster](t, row)
		decodesAlike[flexnode.Subscription](t, row)
		decodesAlike[flexnode.Tombstones](t, row)
		decodesAlike[flexnode.Operation](t, row)
		decodesAlike[Credential](t, row)
		decodesAlike[Sealed](t, row)
		decodesAlike[Member](t, row)
		decodesAlike[json.RawMessage](t, row)
		decodesAlike[string](t, row)
		decodesAlike[Outer](t, row)
	})
}

func decodesAlike[T any](t *testing.T, row []byte) {
	t.Helper()
	var want, got T
	if _, own := any(&want).(reader); own {
		return
	}
	refused, err := json.Unmarshal(row, &want), decodeInto(row, &got)
	if (err == nil) != (refused == nil) || err == nil && !reflect.DeepEqual(got, want) {
		t.Errorf("%q becomes\n%+v, %v; encoding/json makes\n%+v of it, %v", row, got, err, want, refused)
	}
	if err != nil {
		return
	}
	var again T
	text, err := encode(row, got)
	if err != nil || json.Unmarshal(text, &again) != nil {
		t.Errorf("%q is written as %s: %v", row, text, err)
	}
}

// The verification of a backup covers all tables: a missing one's rows would count as unknown.
func TestEveryTableIsVerified(t *testing.T) {
	s := New(storetest.NewMemory())
	set(t, s, "a", "1")
	setRow(t, s.Rollouts, "s/g/c", flexnode.Rollout{})
	setRow(t, s.Reaches, "s/g/c/a", true)
	setRow(t, s.History, "s/g/c/n", flexnode.History{})
	must(0, s.BeginSchema(t.Context()))
	missing := pack([]byte(`{"revisions":[{"version":1}]}`)) // and no revision
	put(t, s, s.History.Key("bad"), string(missing))
	var bad []string
	found, err := s.ReadAll(t.Context(), func(err error) { bad = append(bad, err.Error()) })
	if len(bad) != 1 || !strings.Contains(bad[0], "revision 1") {
		t.Errorf("bad rows: %q", bad)
	}
	if err != nil || found.Unknown != 0 || found.Rows["rollouts"] != 1 || found.Rows["reaches"] != 1 {
		t.Errorf("%+v, %v", found, err)
	}
}

// fill sets all fields of a value.
func fill(v reflect.Value) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Date(2026, 11, 21, 8, 0, 0, 5000, time.UTC)))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("<é\u2028"), value)
	case reflect.String:
		v.SetString("\"<é\u2028\\")
	case reflect.Bool:
		v.SetBool(true)
	default:
		v.SetInt(1 << 53)
	}
}

// A row unpacked from the index equals the one that encoding/json decodes, for every field.
func TestDecodeIsComplete(t *testing.T) {
	t.Parallel()
	for _, of := range []reflect.Type{
		reflect.TypeFor[flexnode.Node](), reflect.TypeFor[flexnode.Status](),
	} {
		want, got := reflect.New(of), reflect.New(of)
		fill(want.Elem())
		text := must(json.Marshal(want.Interface()))
		err := decode(text, got.Interface())
		if err != nil || !reflect.DeepEqual(want.Interface(), got.Interface()) {
			t.Errorf("%s becomes %+v, %v", text, got.Elem(), err)
		}
	}
}
