package credential

import (
	"cmp"
	"context"
	"crypto/hmac"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// Handout is a Delivery by the provider itself, and the handler of its URLs. Configurations are
// sealed in the store, written with the change that makes their credential Live and deleted with
// the change that ends that.
type Handout struct {
	Store *store.Store
	Keys  seal.Ring
	// PublicURL is the address of the provider for machines, such as https://provider.example:8447.
	PublicURL string
	Now       func() time.Time
	// Admit, if set, limits the requests with the URL of a credential: leave is called at the end;
	// if it is nil, again is the time to wait before a retry.
	Admit func(ctx context.Context, credential string) (leave func(), again time.Duration)
	// Delivered, if set, is called for each configuration that was handed out: with its credential
	// and node, and often if that has happened often: then the URL was probably stolen.
	Delivered func(credential, node string, often bool, r *http.Request)
}

// HandoutPath is the path of configurations below the public URL.
const HandoutPath = "/configs/"

// Put implements Delivery.
func (h *Handout) Put(v *store.View, key string, text []byte, _ int64, _ time.Time) error {
	return h.Store.Bundles.Set(v, key, store.Sealed{Box: h.Keys.Seal(bundleSeal+key, text)})
}

// URL implements Delivery.
func (h *Handout) URL(key string, expires time.Time) (string, error) {
	path := HandoutPath + key + ".json"
	return strings.TrimSuffix(h.PublicURL, "/") + path + "?" + queries(h.Keys, path, expires)[0], nil
}

// Remove implements Delivery.
func (h *Handout) Remove(ctx context.Context, key string) error {
	_, err := h.Store.Update(ctx, "bundle deleted", nil, func(v *store.View) error {
		if h.Store.Bundles.Row(v, key).Exists() {
			h.Store.Bundles.Delete(v, key)
		}
		return nil
	})
	return err
}

// Sweep implements Delivery: a configuration is deleted with the change that ends its credential.
func (h *Handout) Sweep(context.Context) error { return nil }

// ServeHTTP answers GET of a configuration: it checks signature, then expiry, then state. Every URL
// that does not work gets the same answer, which does not reveal the reason.
func (h *Handout) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Content-Type-Options", "nosniff")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		arm.Errorf(http.StatusMethodNotAllowed, "MethodNotAllowed",
			"The method is not allowed here. Allowed are GET, HEAD.").Write(w)
		return
	}
	found, err := h.open(r)
	if err != nil {
		refused, told := errors.AsType[*arm.Error](err)
		if !told {
			refused = arm.Errorf(http.StatusServiceUnavailable, "ServiceUnavailable",
				"The configuration cannot be read now. Try again.")
		}
		if refused.Status != http.StatusForbidden {
			arm.SetRetryAfter(header, cmp.Or(found.again, arm.RetryLater))
		}
		refused.Write(w)
		return
	}
	if h.Delivered != nil && r.Method == http.MethodGet {
		h.Delivered(found.credential, found.node, found.often, r)
	}
	header.Set("Content-Type", "application/json")
	_, _ = w.Write(found.content) // a client that has gone will retry
}

// dead returns the error for a URL that does not work, for any reason.
func dead() error {
	return arm.Errorf(http.StatusForbidden, "AuthenticationFailed",
		"This URL is not valid: it was altered, has expired, or was used or replaced. POST "+
			"regenerateToken to create a new one.")
}

// handedOut is a configuration, with the keys of its credential and node, and whether it was handed
// out often before; or the time to wait before a retry.
type handedOut struct {
	credential, node string
	often            bool
	content          []byte
	again            time.Duration
}

// open returns the configuration of a request, if its credential is live.
func (h *Handout) open(r *http.Request) (found handedOut, err error) {
	if !h.isGenuine(r.URL) {
		return found, dead()
	}
	key := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, HandoutPath), ".json") // it was signed
	if h.Admit != nil {
		leave, again := h.Admit(r.Context(), key)
		if leave == nil {
			found.again = again
			return found, arm.Errorf(http.StatusTooManyRequests, "TooManyRequests",
				"This URL is requested too often. Try again later.")
		}
		defer leave()
	}
	ahead := []string{h.Store.Credentials.Key(key), h.Store.Bundles.Key(key)}
	_, err = h.Store.Update(r.Context(), "configuration handed out", ahead,
		func(v *store.View) (err error) {
			c, bundle := h.Store.Credentials.Row(v, key).Value, h.Store.Bundles.Row(v, key)
			if c.State != store.Live || !h.Now().Before(c.Expires) || !bundle.Exists() ||
				h.Store.Nodes.Row(v, c.Node).Value.Credential != key {
				return dead()
			}
			found = handedOut{credential: key, node: c.Node, often: c.Delivered >= counted}
			found.content, err = h.Keys.Open(bundleSeal+key, bundle.Value.Box)
			if err != nil || r.Method != http.MethodGet || found.often {
				return err
			}
			c.Delivered++ // before it is sent
			return h.Store.Credentials.Put(v, key, c)
		})
	if errors.Is(err, store.ErrFull) { // only the count could not be written
		err = nil
	}
	return found, err
}

// counted limits the count of deliveries of a configuration.
const counted = 20

const (
	// signedVersion is the version of the storage service that defines the string-to-sign of queries.
	signedVersion = "2020-12-06"
	signedTime    = "2006-01-02T15:04:05Z"
	// urlSigning is the purpose for which keys for URLs are derived.
	urlSigning = "configuration URLs"
)

// queries returns the parameters of the URL of a path until a time, signed by each key of a ring.
// They have the form of a service SAS for one blob, read only: sv, se, sr=b, sp=r, sig. The text to
// sign has its 16 fields, with unused ones empty (Azure Storage, "Create a service SAS").
func queries(keys seal.Ring, path string, expires time.Time) (all []string) {
	end := expires.UTC().Format(signedTime)
	macs := keys.MACs(urlSigning, strings.Join([]string{
		"r", "", end, "/blob" + path, "", "", "https", signedVersion, "b", "", "", "", "", "", "", "",
	}, "\n"))
	for _, mac := range macs {
		all = append(all, url.Values{
			"sv": {signedVersion}, "se": {end}, "sr": {"b"}, "sp": {"r"}, "spr": {"https"},
			"sig": {base64.StdEncoding.EncodeToString(mac)},
		}.Encode())
	}
	return all
}

// isGenuine reports whether a key of the ring has signed a URL, its parameters are unchanged, and
// it has not expired.
func (h *Handout) isGenuine(from *url.URL) bool {
	query, err := url.ParseQuery(from.RawQuery)
	expires, _ := time.Parse(signedTime, query.Get("se")) // the zero time has passed
	given, signed := []byte(query.Encode()), queries(h.Keys, from.Path, expires)
	return err == nil && h.Now().Before(expires) && slices.ContainsFunc(signed, func(q string) bool {
		return hmac.Equal([]byte(q), given)
	})
}

// Delivery holds configurations for their machines, by key of their credential.
type Delivery interface {
	// Put delivers a configuration until a time, with the change of the view or, if that cannot be,
	// before it. version is its configVersion: an older one never replaces a newer one. It may be
	// called again for the same change.
	Put(v *store.View, key string, text []byte, version int64, expires time.Time) error
	// URL returns the URL where a machine gets it without any other credential.
	URL(key string, expires time.Time) (string, error)
	// Remove makes the URL useless for ever; it is a no-op for a missing one.
	Remove(ctx context.Context, key string) error
	// Sweep removes configurations without a credential.
	Sweep(ctx context.Context) error
}

// The owners of boxes: the beginning of the context that seal.Ring gets; the key follows.
const (
	tokenSeal   = "credentials/"
	secretSeal  = "secrets/"
	arcLeftSeal = "arcleft/"
	bundleSeal  = "bundles/"
)

// URL returns the URL of a credential, with the configVersion that it hands out; nil unless it is
// Live. key may be "".
func (s *Service) URL(ctx context.Context, key string) (*api.ConfigURL, error) {
	if key == "" {
		return nil, nil
	}
	row, err := s.Store.Credentials.Get(ctx, key)
	c := row.Value
	if err != nil || !row.Exists() || c.State != store.Live || !s.Now().Before(c.Expires) {
		return nil, err
	}
	url, err := s.Delivery.URL(key, c.Expires)
	if err != nil {
		return nil, err
	}
	return &api.ConfigURL{
		ConfigVersion: strconv.FormatInt(c.Config, 10), ConfigURL: url, ConfigURLExpires: c.Expires,
	}, nil
}

// Await waits until a credential is no longer Pending, or ctx ends, and returns its row as last
// read.
func (s *Service) Await(ctx context.Context, key string) (store.Row[store.Credential], error) {
	return s.Store.Credentials.Wait(ctx, key, func(row store.Row[store.Credential]) bool {
		return row.Value.State != store.Pending
	})
}
