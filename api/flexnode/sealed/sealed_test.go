package sealed

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hpke"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
)

var about = About{
	ID: "/subscriptions/1/resourceGroups/Edge/providers/Microsoft.ContainerService/" +
		"managedClusters/Factory/flexNodeConfig/n",
	UID: "AAAAAAAA-0000-0000-0000-000000000001",
}

func newKey(t testing.TB) *Key {
	t.Helper()
	k, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// What is sealed to a key opens with it, as what it is about, and in no other way.
func TestSealed(t *testing.T) {
	k, text := newKey(t), []byte(`{"config":{}}`)
	enc, sealed, err := Seal(k.Public(), about, text)
	if err != nil || bytes.Contains(sealed, []byte("config")) {
		t.Fatalf("%v: %q", err, sealed)
	}
	lower := About{ID: strings.ToLower(about.ID), UID: strings.ToLower(about.UID)}
	if got, err := k.Open(lower, enc, sealed); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%q, %v", got, err)
	}
	changed := bytes.Clone(sealed)
	changed[0] ^= 1
	for name, open := range map[string]func() ([]byte, error){
		"another key": func() ([]byte, error) { return newKey(t).Open(about, enc, sealed) },
		"another node": func() ([]byte, error) {
			return k.Open(About{about.ID + "x", about.UID}, enc, sealed)
		},
		"another uid": func() ([]byte, error) { return k.Open(About{about.ID, "x"}, enc, sealed) },
		"changed":     func() ([]byte, error) { return k.Open(about, enc, changed) },
		"cut off":     func() ([]byte, error) { return k.Open(about, enc, sealed[:len(sealed)-1]) },
		"empty":       func() ([]byte, error) { return k.Open(about, enc, nil) },
		"without a key": func() ([]byte, error) {
			return k.Open(about, enc[:31], sealed)
		},
		"with a key of low order": func() ([]byte, error) {
			return k.Open(about, make([]byte, keySize), sealed)
		},
	} {
		if got, err := open(); err == nil || got != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	again, _, err := Seal(k.Public(), about, text)
	if err != nil || bytes.Equal(again, enc) {
		t.Errorf("two answers have the same key: %x, %v", again, err)
	}
}

// lowOrder are the points of Curve25519 with which every key makes the same secret (RFC 7748,
// section 6.1; cr.yp.to/ecdh.html).
var lowOrder = []string{
	"0000000000000000000000000000000000000000000000000000000000000000",
	"0100000000000000000000000000000000000000000000000000000000000000",
	"e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
	"5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
}

func TestRefusedPublicKeys(t *testing.T) {
	bad := [][]byte{nil, {1}, make([]byte, 31), make([]byte, 33), make([]byte, 1<<16)}
	for _, text := range lowOrder {
		point, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		bad = append(bad, point)
	}
	for _, public := range bad {
		if _, _, err := Seal(public, About{}, nil); !errors.Is(err, ErrPublicKey) {
			t.Errorf("%x: %v", public, err)
		}
	}
	if _, _, err := Seal(newKey(t).Public(), About{}, nil); err != nil {
		t.Error(err)
	}
}

// vector is a recorded answer: other programs and other releases can open what this one seals,
// and the other way round.
type vector struct {
	Private, Encapsulated, Ciphertext, Info []byte
	ID, UID, Text                           string
}

// The form of answers does not change, nor what they are bound to. The vector was made with the
// standard library alone.
func TestVector(t *testing.T) {
	data, err := os.ReadFile("testdata/vector.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vector
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	private, err := hpke.DHKEM(ecdh.X25519()).NewPrivateKey(v.Private)
	if err != nil {
		t.Fatal(err)
	}
	got, err := (&Key{private}).Open(About{v.ID, v.UID}, v.Encapsulated, v.Ciphertext)
	if err != nil || string(got) != v.Text {
		t.Errorf("%q, %v", got, err)
	}
	if info := (About{v.ID, v.UID}).info(); !bytes.Equal(info, v.Info) {
		t.Errorf("info is %q, want %q", info, v.Info)
	}
}

func FuzzOpen(f *testing.F) {
	k, err := NewKey()
	if err != nil {
		f.Fatal(err)
	}
	enc, sealed, err := Seal(k.Public(), about, []byte("text"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(enc, sealed)
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, e, s []byte) {
		got, err := k.Open(about, e, s)
		genuine := bytes.Equal(s, sealed) && string(got) == "text"
		if err == nil && !genuine {
			t.Errorf("opened %x, %x: %q", e, s, got)
		}
		if _, _, err := Seal(e, About{}, nil); err == nil && len(e) != keySize {
			t.Errorf("a key of %d bytes", len(e))
		}
	})
}
