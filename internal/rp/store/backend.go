package store

import "github.com/Azure/AKSFlexNode/internal/rp/store/kv"

// The database that a Store is in, in the words of package kv.
type (
	Backend   = kv.Backend
	KV        = kv.KV
	Condition = kv.Condition
	Write     = kv.Write
	Page      = kv.Page
	Event     = kv.Event
	Batch     = kv.Batch
	Lease     = kv.Lease
	Health    = kv.Health
)

// The errors of a Backend.
var (
	ErrConflict  = kv.ErrConflict
	ErrCompacted = kv.ErrCompacted
	ErrTooLarge  = kv.ErrTooLarge
	ErrFull      = kv.ErrFull
)

// MaxWrites limits the writes, and the conditions, of a commit.
const MaxWrites = kv.MaxWrites
