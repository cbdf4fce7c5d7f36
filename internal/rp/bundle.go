package rp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	store "github.com/Azure/AKSFlexNode/internal/rp/oldstore"
)

// Bundles is where configurations wait for their machines, by key of their credential.
type Bundles interface {
	// Put stores a configuration until a time.
	Put(ctx context.Context, key string, content []byte, expires time.Time) error
	// URL is where a machine gets it without any other credential.
	URL(key string, expires time.Time) (string, error)
	// Delete makes the URL useless; what is not there has been deleted.
	Delete(ctx context.Context, key string) error
}

// OwnBundles hands configurations out itself. They are sealed in the store, and served while their credential is live.
type OwnBundles struct {
	Store *store.Store
	Keys  seal.Ring
	// PublicURL is how machines reach the provider, such as https://provider.example:8447.
	PublicURL string
	Now       func() time.Time
	// Read is told who has read which one.
	Read func(key string, r *http.Request)
}

// bundlePath is where bundles are below the public URL.
const bundlePath = "/configs/"

// Put implements Bundles.
func (b *OwnBundles) Put(ctx context.Context, key string, content []byte, expires time.Time) error {
	box, err := b.Keys.Seal("bundles/"+key, content)
	if err != nil {
		return err
	}
	txn := (b.Store).Txn()
	b.Store.Bundles.Set(txn, key, store.Sealed{Box: box, Expires: expires})
	_, err = txn.Commit(ctx)
	return err
}

// Delete implements Bundles.
func (b *OwnBundles) Delete(ctx context.Context, key string) error {
	txn := b.Store.Txn()
	b.Store.Bundles.Clear(txn, key)
	_, err := txn.Commit(ctx)
	return err
}

// URL implements Bundles.
func (b *OwnBundles) URL(key string, expires time.Time) (string, error) {
	path := bundlePath + key + ".json"
	query, err := signed{path: path, expires: expires}.query(b.Keys)
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.PublicURL, "/") + path + "?" + query, nil
}

// ServeHTTP answers GET of a bundle: signature, then expiry, then state. Every URL that does not work gets the same answer, so that
// nobody learns from it why.
func (b *OwnBundles) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		arm.Errorf(405, "MethodNotAllowed", "The method is not allowed here. Allowed are GET, HEAD.").Write(w)
		return
	}
	key, content, err := b.open(r)
	if errors.Is(err, errDead) {
		arm.Errorf(403, "AuthenticationFailed", "This URL does not give out a configuration: it is not as it was made, or it has expired, was used or was replaced. POST regenerateToken makes a new one.").Write(w)
		return
	}
	if err != nil {
		h.Set("Retry-After", fmt.Sprint(retryAfter))
		arm.Errorf(503, "ServiceUnavailable", "The configuration cannot be read now. Try again.").Write(w)
		return
	}
	if b.Read != nil {
		b.Read(key, r)
	}
	h.Set("Content-Type", "application/json")
	_, _ = w.Write(content) // a client that has gone asks again
}

// errDead is why a URL does not work, whatever the reason.
var errDead = errors.New("the URL is dead")

func (b *OwnBundles) open(r *http.Request) (string, []byte, error) {
	u, err := parseSigned(r.URL)
	if err != nil || !u.genuine(b.Keys) {
		return "", nil, errDead
	}
	if !b.Now().Before(u.expires) {
		return "", nil, errDead
	}
	key, ok := strings.CutSuffix(strings.TrimPrefix(u.path, bundlePath), ".json")
	if !ok {
		return "", nil, errDead
	}
	row, err := b.Store.Credentials.Get(r.Context(), key)
	if err != nil {
		return "", nil, err
	}
	if !row.Exists() || row.Value.State != store.Live || !b.Now().Before(row.Value.Expires) {
		return "", nil, errDead
	}
	bundle, err := b.Store.Bundles.Get(r.Context(), key)
	if err != nil {
		return "", nil, err
	}
	if !bundle.Exists() {
		return "", nil, errDead
	}
	content, err := b.Keys.Open("bundles/"+key, bundle.Value.Box)
	return key, content, err
}
