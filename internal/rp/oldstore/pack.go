package store

import (
	_ "embed"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// A row in the index is packed: rows are much alike, so a sample of one as the dictionary makes them a quarter of their size.
//
//go:embed dictionary.txt
var dictionary []byte

// packer packs rows. It may be used by several goroutines at once.
type packer struct {
	encoder *zstd.Encoder
	decoder *zstd.Decoder
}

// dictionaryID tells what was packed with this dictionary; packed rows are kept in memory only.
const dictionaryID = 1

func newPacker() packer {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderDictRaw(dictionaryID, dictionary), zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true), zstd.WithWindowSize(64<<10), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic("internal error: " + err.Error())
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderDictRaw(dictionaryID, dictionary), zstd.WithDecoderConcurrency(2), zstd.WithDecoderLowmem(true))
	if err != nil {
		panic("internal error: " + err.Error())
	}
	return packer{encoder, decoder}
}

func (p packer) pack(row []byte) []byte {
	return p.encoder.EncodeAll(row, make([]byte, 0, len(row)))
}

func (p packer) unpack(packed []byte) ([]byte, error) {
	row, err := p.decoder.DecodeAll(packed, nil)
	if err != nil {
		return nil, fmt.Errorf("internal error: cannot unpack a row of the index: %w", err)
	}
	return row, nil
}
