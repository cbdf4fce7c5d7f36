package credential

import (
	"context"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// Delivery is where configurations wait for their machines, by key of their credential.
type Delivery interface {
	// Put has a change deliver a configuration until a time: with it, or, where that cannot be,
	// before it. version is its configVersion: an older one never replaces a newer one. It may be
	// called again for the same change.
	Put(v *store.View, key string, text []byte, version int64, expires time.Time) error
	// URL is where a machine gets it without any other credential.
	URL(key string, expires time.Time) (string, error)
	// Remove makes the URL useless for ever; what is not there has been removed.
	Remove(ctx context.Context, key string) error
	// Sweep removes what no credential stands behind. It leaves the keys of credentials alone that
	// keep reports.
	Sweep(ctx context.Context, keep func(key string) bool) error
}

// What a box belongs to: the beginning of the context that seal.Ring gets; the key follows.
const (
	tokenSeal   = "credentials/"
	secretSeal  = "secrets/"
	arcLeftSeal = "arcleft/"
	bundleSeal  = "bundles/"
)
