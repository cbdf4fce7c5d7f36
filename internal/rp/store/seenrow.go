package store

import (
	"encoding/binary"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A row of Seen is when it was written, in minutes since 1970 in 4 bytes, and for each node the
// hash of its uid in 8 bytes and when it was heard of in 4, in the order of the hashes. Big-endian.
const (
	seenHeadSize = 4
	seenItemSize = 12
)

func packSeen(written uint32, nodes map[uint64]uint32) []byte {
	row := make([]byte, 0, seenHeadSize+len(nodes)*seenItemSize)
	row = binary.BigEndian.AppendUint32(row, written)
	for _, hash := range slices.Sorted(maps.Keys(nodes)) {
		row = binary.BigEndian.AppendUint64(row, hash)
		row = binary.BigEndian.AppendUint32(row, nodes[hash])
	}
	return row
}

// unpackSeen reads a row; what is cut off is left out.
func unpackSeen(row []byte) (written uint32, nodes map[uint64]uint32) {
	nodes = map[uint64]uint32{}
	if len(row) < seenHeadSize {
		return 0, nodes
	}
	written = binary.BigEndian.Uint32(row)
	for rest := row[seenHeadSize:]; len(rest) >= seenItemSize; rest = rest[seenItemSize:] {
		nodes[binary.BigEndian.Uint64(rest)] = binary.BigEndian.Uint32(rest[8:])
	}
	return written, nodes
}

// merge is told each row of each replica by the index; none is one that was deleted.
func (s *Seen) merge(key string, row []byte) {
	slash := strings.LastIndexByte(key, '/')
	i, err := strconv.Atoi(key[slash+1:])
	if err != nil || slash < 0 || i < 0 || i >= seenShards {
		return // of another program
	}
	name, shard := key[:slash], &s.shards[i]
	written, nodes := unpackSeen(row)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	mine := name == s.replica
	switch {
	case mine && row == nil: // another replica took this one for gone
		shard.written, shard.changed = 0, true
	case mine:
		shard.written = max(shard.written, written)
	case row == nil:
		delete(shard.others, name)
	default:
		shard.others[name] = written
	}
	latest := minutes(s.Now().Add(seenAhead))
	for hash, at := range nodes {
		if at > latest {
			continue
		}
		known := shard.nodes[hash].minutes
		if hash>>58 == uint64(i) && (known < at || known == at && mine) {
			shard.nodes[hash] = heard{at, mine}
		}
	}
}
