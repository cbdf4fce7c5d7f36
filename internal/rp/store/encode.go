package store

import (
	"bytes"
	_ "embed" // for the dictionary
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// encode is the JSON of a value. What before has and the type of the value does not know remains:
// a newer program has written it.
func encode(before []byte, value any) ([]byte, error) {
	data, err := json.Marshal(value)
	if err != nil || len(before) == 0 {
		return data, err
	}
	return keepUnknown(before, data, reflect.TypeOf(value)), nil
}

// keepUnknown adds to an object what another has and a type does not know, also in objects within.
// Lists and maps are the new value's alone.
func keepUnknown(before, data []byte, t reflect.Type) []byte {
	names := members(t)
	if names == nil {
		return data
	}
	var old, now map[string]json.RawMessage
	if json.Unmarshal(before, &old) != nil || json.Unmarshal(data, &now) != nil || now == nil {
		return data
	}
	changed := false
	for name, value := range old {
		field, known := names[name]
		present, there := now[name]
		switch {
		case !known && !there:
			now[name], changed = value, true
		case known && there:
			if kept := keepUnknown(value, present, field); !bytes.Equal(kept, present) {
				now[name], changed = kept, true
			}
		}
	}
	if !changed {
		return data
	}
	merged, err := json.Marshal(now)
	if err != nil { // what was just decoded encodes
		return data
	}
	return merged
}

var membersOf sync.Map // of reflect.Type: map[string]reflect.Type

// members are the JSON names of a struct's fields, with their types; nil for what is no struct or
// encodes itself.
func members(t reflect.Type) map[string]reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct || t.Implements(marshaler) ||
		reflect.PointerTo(t).Implements(marshaler) {
		return nil
	}
	if known, ok := membersOf.Load(t); ok {
		return known.(map[string]reflect.Type)
	}
	names := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, _, _ := strings.Cut(tag, ",")
		switch {
		case tag == "-":
		case f.Anonymous && name == "" && embeds(f.Type): // also one that is not exported
			maps.Copy(names, members(f.Type))
		case !f.IsExported():
		case name == "":
			names[f.Name] = f.Type
		default:
			names[name] = f.Type
		}
	}
	membersOf.Store(t, names)
	return names
}

// embeds reports whether an embedded type's fields are the outer struct's.
func embeds(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct
}

var marshaler = reflect.TypeFor[json.Marshaler]()

// codec makes the encoder and decoder of packed tables, once. What is stored is written with each
// change of a node: without zstd's entropy coding it takes a third more and half the time.
var codec = sync.OnceValues(func() (*zstd.Encoder, *zstd.Decoder) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(2),
		zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithNoEntropyCompression(true), zstd.WithEncoderCRC(false),
		zstd.WithWindowSize(64<<10), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic("internal error: " + err.Error())
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0),
		zstd.WithDecoderLowmem(true))
	if err != nil {
		panic("internal error: " + err.Error())
	}
	return encoder, decoder
})

func pack(data []byte) []byte {
	encoder, _ := codec()
	return encoder.EncodeAll(data, make([]byte, 0, len(data)/2))
}

func unpack(data []byte) ([]byte, error) {
	_, decoder := codec()
	return decoder.DecodeAll(data, nil)
}

// likely has rows of nodes as they are likely to be.
//
//go:embed likely.jsonl
var likely []byte

// packer packs the rows of an index, which are kept in memory only. They are much alike, so some
// likely ones as the dictionary make them less than half as large as they would be packed without.
// It may be used by several goroutines at once.
type packer struct{ dictionary *s2.Dict }

func newPacker() packer {
	dictionary := s2.MakeDict(likely, nil)
	if dictionary == nil {
		panic("internal error: likely.jsonl is no dictionary")
	}
	return packer{dictionary}
}

func (p packer) pack(row []byte) []byte { return p.dictionary.Encode(nil, row) }

func (p packer) unpack(packed string) ([]byte, error) {
	row, err := p.dictionary.Decode(nil, []byte(packed))
	if err != nil {
		return nil, fmt.Errorf("internal error: %w", err)
	}
	return row, nil
}
