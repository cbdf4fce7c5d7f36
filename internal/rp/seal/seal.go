// Package seal encrypts what the provider stores, in envelopes: each box has a data key of its own,
// which a key of a ring wraps; the ring is in a file outside the store. A copy of the store alone
// reveals no secret, and a key is replaced without touching the data under it.
package seal

import (
	"bytes"
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/internal/signing"
	"github.com/Azure/AKSFlexNode/internal/signing/rootkey"
)

// Key is a key-encryption key: 32 bytes with an id that boxes refer to. Signing is its signing key
// (package signing).
type Key struct {
	ID      string `json:"id"`
	Bytes   []byte `json:"key"`
	Signing []byte `json:"signingKey"`
}

// Ring holds the keys that open boxes. The first also seals them, and signs.
type Ring struct {
	Keys []Key `json:"keys"`
	// Certificates holds the certificates of the signing keys, by id, also of dropped keys, whose
	// signatures remain. Root is the root key's certificate. All are in DER.
	Certificates map[string][]byte `json:"certificates"`
	Root         []byte            `json:"root"`
}

// Box is sealed content.
type Box struct {
	Key     string `json:"key"`     // id of the key that wraps
	Wrapped []byte `json:"wrapped"` // nonce and data key
	Data    []byte `json:"data"`    // nonce and content
}

// Load reads a ring from a file that only its owner may read.
func Load(path string) (Ring, error) {
	info, err := os.Stat(path)
	if err == nil && !Private(path, info.Mode()) {
		return Ring{}, fmt.Errorf("cannot use the keys in %s: other users can read them; run `chmod "+
			"600 %s`", path, path)
	}
	data, unread := os.ReadFile(path)
	if err = cmp.Or(err, unread); err != nil {
		return Ring{}, fmt.Errorf("cannot read the keys: %w", err)
	}
	var r Ring
	if err := json.Unmarshal(data, &r); err != nil {
		return Ring{}, fmt.Errorf("cannot read the keys in %s: %w", path, err)
	}
	return r, r.check(path)
}

func (r Ring) check(path string) error {
	if len(r.Keys) == 0 {
		return fmt.Errorf("cannot use the keys in %s: it has none", path)
	}
	for _, k := range r.Keys {
		if k.ID == "" || len(k.Bytes) != 32 {
			return fmt.Errorf("cannot use the key %q in %s: a key has an id and 32 bytes", k.ID, path)
		}
		if _, err := r.Certified(k.ID); err != nil || len(k.Signing) == 0 {
			return fmt.Errorf("cannot use the key %q in %s: it has no certificate of the root key",
				k.ID, path)
		}
	}
	return nil
}

// RootFile returns the path of the root key beside a file with keys, until it is taken offline.
func RootFile(path string) string { return filepath.Join(filepath.Dir(path), "root-key.pem") }

// Init writes a file with a ring of one key, certified by the root key in another file, which it
// creates if it is missing. It does not replace a ring.
func Init(path, root string, now time.Time) (Ring, error) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return Ring{}, fmt.Errorf("cannot create the keys in %s: it already exists; `keys add` adds a "+
			"key to it", path)
	}
	by, err := loadRoot(root)
	if errors.Is(err, fs.ErrNotExist) {
		if by, err = rootkey.NewRoot(now); err == nil {
			err = write(root, by.PEM())
		}
	}
	if err != nil {
		return Ring{}, err
	}
	r, err := NewRing(by, now)
	if err != nil {
		return Ring{}, err
	}
	return r, r.save(path)
}

// NewRing makes a ring of one key, which a root key certifies.
func NewRing(by *rootkey.Root, now time.Time) (Ring, error) {
	r := Ring{Certificates: map[string][]byte{}, Root: by.Certificate()}
	return r, r.add(by, now)
}

// Add appends a new key to the ring in a file: it opens boxes, but seals none until Promote, so
// that a process that has not read the file again meets no box that it cannot open.
func Add(path, root string, now time.Time) (Ring, error) {
	return change(path, func(r *Ring) error {
		by, err := loadRoot(root)
		if err == nil && !bytes.Equal(by.Certificate(), r.Root) {
			err = fmt.Errorf("cannot add a key: the root key in %s is not that of %s", root, path)
		}
		if err != nil {
			return err
		}
		return r.add(by, now)
	})
}

func (r *Ring) add(by *rootkey.Root, now time.Time) error {
	random := make([]byte, 32+4)
	_, _ = rand.Read(random) // it never fails
	id, signs := fmt.Sprintf("%x", random[32:]), rootkey.NewKey()
	r.Keys = append(r.Keys, Key{ID: id, Bytes: random[:32], Signing: signs})
	var err error
	r.Certificates[id], err = by.Certify(signs, "flexnode-rp "+id, now)
	return err
}

func loadRoot(path string) (*rootkey.Root, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the root key: %w", err)
	}
	root, err := rootkey.ParseRoot(text)
	if err != nil {
		return nil, fmt.Errorf("cannot use the root key in %s: %w", path, err)
	}
	return root, nil
}

// change changes the ring in a file, unless with fails.
func change(path string, with func(*Ring) error) (Ring, error) {
	r, err := Load(path)
	if err == nil {
		err = with(&r)
	}
	if err == nil {
		err = r.save(path)
	}
	return r, err
}

// Promote moves the last key of the ring in a file to the front. All processes that use the file
// must have read it since that key was added.
func Promote(path string) (Ring, error) {
	return change(path, func(r *Ring) error {
		last := len(r.Keys) - 1
		if last == 0 {
			return fmt.Errorf("cannot promote a key in %s: it has only one; `keys add` adds another", path)
		}
		r.Keys = append([]Key{r.Keys[last]}, r.Keys[:last]...)
		return nil
	})
}

// Drop removes every key but the first from the ring in a file, unless a box is still sealed with
// another: boxes has the number of boxes by id of the key.
func Drop(path string, boxes map[string]int) (Ring, error) {
	return change(path, func(r *Ring) error {
		others := -boxes[r.Keys[0].ID]
		for _, n := range boxes {
			others += n
		}
		if others > 0 {
			return fmt.Errorf("cannot drop the older keys in %s: %d boxes are sealed with keys other "+
				"than %s; run `keys rewrap` first", path, others, r.Keys[0].ID)
		}
		r.Keys = r.Keys[:1]
		return nil
	})
}

func (r Ring) save(path string) error {
	data, _ := json.MarshalIndent(r, "", "  ") // texts and bytes can be encoded
	return write(path, append(data, '\n'))
}

func write(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".keys-*") // 0600
	if err != nil {
		return fmt.Errorf("cannot write the keys: %w", err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("cannot write the keys: %w", err), os.Remove(f.Name()))
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("cannot write the keys: %w", err)
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Sign signs a statement with the first key, and returns that key's id.
func (r Ring) Sign(s signing.Statement) (id string, signature []byte, err error) {
	signature, err = rootkey.Sign(r.Keys[0].Signing, s)
	return r.Keys[0].ID, signature, err
}

// Verify returns an error unless the key with an id has signed a statement.
func (r Ring) Verify(id string, signature []byte, s signing.Statement) error {
	_, err := signing.Verify(r.Root, r.Certificates[id], signature, s)
	return err
}

// Certified returns the time until which the root key certifies the key with an id.
func (r Ring) Certified(id string) (until time.Time, err error) {
	certificate, err := x509.ParseCertificate(r.Certificates[id])
	if err != nil {
		return until, fmt.Errorf("cannot read the certificate of the key %s: %w", id, err)
	}
	return certificate.NotAfter, nil
}

// IDs returns the ids of the keys, the first one's first.
func (r Ring) IDs() []string {
	ids := make([]string, len(r.Keys))
	for i, k := range r.Keys {
		ids[i] = k.ID
	}
	return ids
}

// Current reports whether a box is sealed with the first key.
func (r Ring) Current(b Box) bool { return len(r.Keys) > 0 && b.Key == r.Keys[0].ID }

// Seal seals content in a box. about names its owner; the box opens only with the same one.
func (r Ring) Seal(about string, content []byte) Box {
	first, dataKey := r.Keys[0], make([]byte, 32)
	_, _ = rand.Read(dataKey) // it never fails
	return Box{Key: first.ID, Wrapped: encrypt(first.Bytes, dataKey, about),
		Data: encrypt(dataKey, content, about)}
}

// Open opens a box.
func (r Ring) Open(about string, b Box) ([]byte, error) {
	i := slices.Index(r.IDs(), b.Key)
	if i < 0 {
		return nil, fmt.Errorf("cannot open what was sealed with the key %q: it is not in the ring",
			b.Key)
	}
	dataKey, err := decrypt(r.Keys[i].Bytes, b.Wrapped, about)
	if err != nil {
		return nil, err
	}
	return decrypt(dataKey, b.Data, about)
}

// Rewrap seals the content of a box again, with the first key.
func (r Ring) Rewrap(about string, b Box) (Box, error) {
	content, err := r.Open(about, b)
	if err != nil {
		return b, err
	}
	return r.Seal(about, content), nil
}

// MACs returns the MACs of a text for a purpose, one with each key of the ring: new texts get the
// first, and all are accepted.
func (r Ring) MACs(purpose, text string) (all [][]byte) {
	for _, k := range r.Keys {
		derived, _ := hkdf.Key(sha256.New, k.Bytes, nil, purpose, 32) // fails only for a longer one
		h := hmac.New(sha256.New, derived)
		h.Write([]byte(text))
		all = append(all, h.Sum(nil))
	}
	return all
}

func aead(key []byte) cipher.AEAD {
	block, _ := aes.NewCipher(key) // of 32 bytes, as checked
	gcm, _ := cipher.NewGCMWithRandomNonce(block)
	return gcm
}

func encrypt(key, content []byte, about string) []byte {
	return aead(key).Seal(nil, nil, content, []byte(about))
}

func decrypt(key, data []byte, about string) ([]byte, error) {
	content, err := aead(key).Open(nil, nil, data, []byte(about))
	if err != nil {
		return nil, fmt.Errorf("cannot open what is sealed for %s: %w", about, err)
	}
	return content, nil
}

// Private reports, by its mode, whether only this program's user may read a file. systemd may grant
// a service its credentials by an access list for its user, which a mode shows as the right of a
// group that has none (systemd.exec(5), LoadCredential=). Root meets these files from a shell, too:
// only root can create one below /run/credentials.
func Private(path string, mode fs.FileMode) bool {
	own, dir := os.Getenv("CREDENTIALS_DIRECTORY"), filepath.Dir(path)
	if own != "" && dir == filepath.Clean(own) || filepath.Dir(dir) == "/run/credentials" {
		return mode.Perm()&^0o740 == 0
	}
	return mode.Perm()&0o077 == 0
}
