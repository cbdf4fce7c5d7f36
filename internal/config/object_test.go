package config

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Object returns what encoding/json writes and reads, whichever fields are set.
func TestObject(t *testing.T) {
	g := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var c Config
		fillSome(g, reflect.ValueOf(&c).Elem())
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		want, err := decodeObject(text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, Object(c)); diff != "" {
			t.Fatalf("%s\nis not the object (+):\n%s", text, diff)
		}
	}
}

// fillSome sets some fields, also to empty values.
func fillSome(g *rand.Rand, v reflect.Value) {
	if v.Kind() != reflect.Struct && g.IntN(3) == 0 {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fillSome(g, v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillSome(g, v.Elem())
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for _, name := range []string{"a", "b.c/d", "<"}[:g.IntN(4)] {
			item := reflect.New(v.Type().Elem()).Elem()
			fillSome(g, item)
			v.SetMapIndex(reflect.ValueOf(name), item)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), g.IntN(3), 3))
		for i := range v.Len() {
			fillSome(g, v.Index(i))
		}
	case reflect.Bool:
		v.SetBool(g.IntN(2) == 0)
	case reflect.String:
		v.SetString([]string{"", "x", "<&\u00e9>"}[g.IntN(3)])
	default:
		v.SetInt(int64(g.IntN(3) - 1))
	}
}
