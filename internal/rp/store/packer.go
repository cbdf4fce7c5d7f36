package store

import (
	_ "embed" // for the dictionary
	"fmt"

	"github.com/klauspost/compress/s2"
)

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
