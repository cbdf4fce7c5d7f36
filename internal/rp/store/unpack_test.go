package store

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// fill sets all that a value has.
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

// What is unpacked from the index is what encoding/json decodes, of all that a row can have.
func TestDecodeIsComplete(t *testing.T) {
	t.Parallel()
	for _, of := range []reflect.Type{
		reflect.TypeFor[flexnode.Node](), reflect.TypeFor[flexnode.Status](),
	} {
		want, got := reflect.New(of), reflect.New(of)
		fill(want.Elem())
		text, err := json.Marshal(want.Interface())
		if err != nil {
			t.Fatal(err)
		}
		err = decode(text, got.Interface())
		if err != nil || !reflect.DeepEqual(want.Interface(), got.Interface()) {
			t.Errorf("%s becomes %+v, %v", text, got.Elem(), err)
		}
	}
}
