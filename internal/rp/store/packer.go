package store

import (
	"fmt"
	"slices"

	"github.com/klauspost/compress/s2"
)

// packer packs the rows of an index, which are kept in memory only. They are much alike, so a
// sample as the dictionary makes them a quarter of their size. It may be used by several goroutines
// at once. What one has packed, no other can unpack: an index has one from its first rows on.
type packer struct{ dictionary *s2.Dict }

// newPacker makes a packer with rows that there are, nil for none.
func newPacker(learned []byte) packer {
	dictionary := s2.MakeDict(slices.Concat(likely(), learned), nil)
	if dictionary == nil {
		panic("internal error: rows as they are likely to be are no dictionary")
	}
	return packer{dictionary}
}

func (p packer) pack(row []byte) []byte { return p.dictionary.Encode(nil, row) }

// unpack may put the row into a buffer, if that is large enough.
func (p packer) unpack(buffer []byte, packed string) ([]byte, error) {
	row, err := p.dictionary.Decode(buffer, []byte(packed))
	if err != nil {
		return nil, fmt.Errorf("internal error: %w", err)
	}
	return row, nil
}
