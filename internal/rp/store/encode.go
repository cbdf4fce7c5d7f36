package store

import (
	_ "embed" // for the dictionary
	"encoding/json"
	"errors"
	"sync"

	jsonv2 "github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"
	"github.com/klauspost/compress/s2"
)

// reader and writer are rows with an encoding of their own, which preserves unknown members.
type (
	reader interface{ ReadRow(row []byte) error }
	writer interface{ Row() ([]byte, error) }
)

// decodeInto decodes a row as encoding/json does, in half of the time.
func decodeInto[T any](row []byte, value *T) error {
	if own, ok := any(value).(reader); ok {
		return own.ReadRow(row)
	}
	return jsonv1.Unmarshal(row, value)
}

// encode returns the JSON of a value. Members of the previous row that the type does not have are
// preserved: a newer program has written them.
func encode[T any](before []byte, value T) ([]byte, error) {
	if own, ok := any(value).(writer); ok {
		return own.Row()
	}
	now, err := json.Marshal(value)
	if err != nil || len(before) == 0 {
		return now, err
	}
	var was T
	if jsonv2.Unmarshal(before, &was, jsonv1.DefaultOptionsV1(),
		jsonv2.RejectUnknownMembers(true)) == nil || decodeInto(before, &was) != nil {
		return now, nil // in the usual case, the type has all members
	}
	known, err := json.Marshal(was)
	if err != nil {
		return now, err
	}
	return keepUnknown(before, known, now), nil
}

// keepUnknown adds the unknown members of a stored object to the new one, also in nested objects,
// but not in lists.
func keepUnknown(stored, known, now []byte) []byte {
	var all, was, is map[string]json.RawMessage
	err := errors.Join(json.Unmarshal(stored, &all), json.Unmarshal(known, &was),
		json.Unmarshal(now, &is))
	if err != nil || was == nil || is == nil {
		return now
	}
	for name, value := range all {
		before, known := was[name]
		present, there := is[name]
		switch {
		case !known && !there:
			is[name] = value
		case known && there:
			is[name] = keepUnknown(value, before, present)
		}
	}
	merged, _ := json.Marshal(is) // what was just decoded can be encoded
	return merged
}

func pack(data []byte) []byte { return s2.Encode(nil, data) }

func unpack(data []byte) ([]byte, error) { return s2.Decode(nil, data) }

// likely holds typical rows of nodes.
//
//go:embed likely.jsonl
var likely []byte

// dictionary packs the rows of indexes, which are kept in memory only. Rows are much alike: with
// typical ones as the dictionary they take less than half the space.
var dictionary = sync.OnceValue(func() *s2.Dict {
	made := s2.MakeDict(likely, nil)
	if made == nil {
		panic("internal error: likely.jsonl is no dictionary")
	}
	return made
})
