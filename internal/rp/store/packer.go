package store

import (
	"fmt"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// packer packs the rows of an index, which are kept in memory only. They are much alike, so a
// sample as the dictionary makes them a quarter of their size. It may be used by several goroutines
// at once.
type packer struct {
	encoder *zstd.Encoder
	decoder *zstd.Decoder
}

// The ids of dictionaries: of rows as they are likely to be, and with rows that there are.
const (
	likelyID = iota + 1
	learnedID
)

// newPacker makes a packer with rows that there are, nil for none. What one without them has packed
// can be unpacked with it.
func newPacker(learned []byte) packer {
	id, dictionary := uint32(likelyID), likely()
	if len(learned) > 0 {
		id, dictionary = learnedID, slices.Concat(dictionary, learned)
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderDictRaw(id, dictionary),
		zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2),
		zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true), zstd.WithWindowSize(64<<10),
		zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic("internal error: " + err.Error())
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderDictRaw(likelyID, likely()),
		zstd.WithDecoderDictRaw(id, dictionary),
		zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true))
	if err != nil {
		panic("internal error: " + err.Error())
	}
	return packer{encoder, decoder}
}

func (p packer) pack(row []byte) []byte {
	return p.encoder.EncodeAll(row, make([]byte, 0, len(row)/2))
}

func (p packer) unpack(packed string) ([]byte, error) {
	row, err := p.decoder.DecodeAll([]byte(packed), nil)
	if err != nil {
		return nil, fmt.Errorf("internal error: %w", err)
	}
	return row, nil
}
