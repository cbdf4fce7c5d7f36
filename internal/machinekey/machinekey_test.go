package machinekey

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestKeyIsKept(t *testing.T) {
	key := New()
	again := must(Parse(key.PEM()))
	if again.Thumbprint() != key.Thumbprint() {
		t.Errorf("thumbprints %s and %s", key.Thumbprint(), again.Thumbprint())
	}
	for _, bad := range []string{"",
		"-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n"} {
		if _, err := Parse([]byte(bad)); err == nil {
			t.Errorf("read %q", bad)
		}
	}
}

// The example of RFC 7638 is of RSA; this one was computed by its rules with openssl.
func TestThumbprint(t *testing.T) {
	public := PublicKey{
		Kty: "EC", Crv: "P-256", X: "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
		Y: "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
	}
	const want = "oKIywvGUpTVTyxMQ3bwIIeQUudfr_CkLMjCE19ECD-U"
	if got := public.Thumbprint(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// What a token says can be read in it: no secret may get there.
func TestTokenHasNoSecret(t *testing.T) {
	key := New()
	text := key.Sign(Claims{UID: "uid"}, time.Now())
	header := must(base64.RawURLEncoding.DecodeString(strings.Split(text, ".")[0]))
	var h map[string]any
	if err := json.Unmarshal(header, &h); err != nil {
		t.Fatal(err)
	}
	if jwk := h["jwk"].(map[string]any); jwk["d"] != nil || len(jwk) != 4 {
		t.Errorf("the key in the header: %v", jwk)
	}
}
