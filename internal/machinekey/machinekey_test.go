package machinekey

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

var (
	now  = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	said = Claims{UID: "uid", Audience: "https://provider.example", Boot: NewBoot()}
)

// verifier is a provider's, at the time now, with one nonce that holds.
func verifier() Verifier {
	return Verifier{
		Audiences: []string{said.Audience}, Now: func() time.Time { return now },
		Nonce: func(nonce string) (time.Time, bool) {
			return now.Add(Lifetime - time.Minute), nonce == "given"
		},
	}
}

func TestKeyIsKept(t *testing.T) {
	key := must(New())
	again := must(Parse(must(key.PEM())))
	if again.Thumbprint() != key.Thumbprint() {
		t.Errorf("thumbprints %s and %s", key.Thumbprint(), again.Thumbprint())
	}
	for _, bad := range []string{"", "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n"} {
		if _, err := Parse([]byte(bad)); err == nil {
			t.Errorf("read %q", bad)
		}
	}
}

// The example of RFC 7638 is of RSA; this one was computed by its rules with openssl.
func TestThumbprint(t *testing.T) {
	public := publicKey{
		Kty: "EC", Crv: "P-256", X: "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
		Y: "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
	}
	const want = "oKIywvGUpTVTyxMQ3bwIIeQUudfr_CkLMjCE19ECD-U"
	if got := public.thumbprint(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, err := public.key(); err != nil {
		t.Error(err)
	}
}

func TestVerify(t *testing.T) {
	key := must(New())
	bound := said
	bound.Request = RequestOf("POST", "/x/reportStatus", []byte("{}"))
	got := must(verifier().Verify(must(key.Sign(bound, now))))
	if got.Claims != bound || got.Thumbprint != key.Thumbprint() ||
		!got.Ends.Equal(now.Add(Lifetime+Leeway)) {
		t.Errorf("got %+v", got)
	}
	bound.Nonce = "given"
	late := must(verifier().Verify(must(key.Sign(bound, now.Add(time.Hour)))))
	if !got.Issued.Equal(now) || !late.Issued.Equal(now.Add(-time.Minute)) ||
		!late.Signed.Equal(now.Add(time.Hour)) {
		t.Errorf("made at %s; with a nonce at %s, by its clock %s", got.Issued, late.Issued, late.Signed)
	}
	if got.Request.Digest == Digest([]byte("{} ")) {
		t.Error("another body has the same digest")
	}
}

func TestTimes(t *testing.T) {
	key := must(New())
	for name, test := range map[string]struct {
		at    time.Duration
		nonce string
		good  bool
	}{
		"now":                      {0, "", true},
		"almost expired":           {-Lifetime, "", true},
		"expired":                  {-Lifetime - time.Minute, "", false},
		"a clock that is ahead":    {2 * time.Minute, "", false},
		"ahead, with the nonce":    {10 * time.Hour, "given", true},
		"behind, with the nonce":   {-10 * time.Hour, "given", true},
		"ahead, with another one":  {10 * time.Hour, "other", false},
		"right, with another one":  {0, "other", false},
		"a little ahead, and fine": {20 * time.Second, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			c := said
			c.Nonce = test.nonce
			_, err := verifier().Verify(must(key.Sign(c, now.Add(test.at))))
			if (err == nil) != test.good || err != nil && !errors.Is(err, ErrTime) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// change signs a token that differs from a right one.
func change(t *testing.T, key *Key, differ func(header map[string]any, c *claims)) string {
	t.Helper()
	token := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{})
	text := must(key.Sign(said, now))
	var c claims
	parsed, _, err := jwt.NewParser().ParseUnverified(text, &c)
	if err != nil {
		t.Fatal(err)
	}
	token.Header = parsed.Header
	differ(token.Header, &c)
	token.Claims = c
	return must(token.SignedString(key.private))
}

func TestRefused(t *testing.T) {
	key, other := must(New()), must(New())
	right := must(key.Sign(said, now))
	parts := strings.Split(right, ".")
	body := must(base64.RawURLEncoding.DecodeString(parts[1]))
	altered := base64.RawURLEncoding.EncodeToString(
		[]byte(strings.Replace(string(body), `"uid"`, `"uie"`, 1)))
	unsigned := jwt.NewWithClaims(jwt.SigningMethodNone, jwt.MapClaims{"sub": "uid"})
	rs := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{"sub": "uid"})
	hs := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": "uid"})
	for _, t := range []*jwt.Token{unsigned, rs, hs} {
		t.Header["typ"], t.Header["kid"], t.Header["jwk"] = kind, key.Thumbprint(), key.public
	}
	for name, text := range map[string]string{
		"nothing":          "",
		"altered claims":   parts[0] + "." + altered + "." + parts[2],
		"no signature":     must(unsigned.SignedString(jwt.UnsafeAllowNoneSignatureType)),
		"RSA":              must(rs.SignedString(must(rsa.GenerateKey(rand.Reader, 2048)))),
		"HMAC":             must(hs.SignedString([]byte(key.public.X))),
		"too long":         right + strings.Repeat("A", MaxLength),
		"another key":      change(t, key, func(h map[string]any, _ *claims) { h["jwk"] = other.public }),
		"another key's id": change(t, key, func(h map[string]any, _ *claims) { h["kid"] = other.Thumbprint() }),
		"another key, and its id": change(t, key, func(h map[string]any, _ *claims) {
			h["jwk"], h["kid"] = other.public, other.Thumbprint()
		}),
		"no key": change(t, key, func(h map[string]any, _ *claims) { delete(h, "jwk") }),
		"a point that is not on the curve": change(t, key, func(h map[string]any, _ *claims) {
			p := key.public
			p.Y = p.X
			h["jwk"], h["kid"] = p, p.thumbprint()
		}),
		"a key written in another way": change(t, key, func(h map[string]any, _ *claims) {
			p := key.public
			p.X = p.X[:4] + "\n" + p.X[4:]
			h["jwk"], h["kid"] = p, p.thumbprint()
		}),
		"another kind": change(t, key, func(h map[string]any, _ *claims) { h["typ"] = "JWT" }),
		"another audience": change(t, key, func(_ map[string]any, c *claims) {
			c.Audience = jwt.ClaimStrings{"https://other.example"}
		}),
		"two audiences": change(t, key, func(_ map[string]any, c *claims) {
			c.Audience = append(c.Audience, "https://other.example")
		}),
		"no boot":     change(t, key, func(_ map[string]any, c *claims) { c.Boot = "" }),
		"a long boot": change(t, key, func(_ map[string]any, c *claims) { c.Boot += NewBoot() }),
		"no subject":  change(t, key, func(_ map[string]any, c *claims) { c.Subject = "" }),
		"no end":      change(t, key, func(_ map[string]any, c *claims) { c.ExpiresAt = nil }),
		"no issue":    change(t, key, func(_ map[string]any, c *claims) { c.IssuedAt = nil }),
		"a long life": change(t, key, func(_ map[string]any, c *claims) { c.ExpiresAt = jwt.NewNumericDate(now.Add(time.Hour)) }),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := verifier().Verify(text); err == nil {
				t.Errorf("taken: %+v", got)
			}
		})
	}
	if _, err := verifier().Verify(change(t, key, func(map[string]any, *claims) {})); err != nil {
		t.Errorf("the unchanged token is refused: %v", err)
	}
	v := verifier()
	v.Audiences = nil
	c := said
	c.Audience = ""
	if _, err := v.Verify(must(key.Sign(c, now))); err == nil {
		t.Error("a provider without an address takes a token for none")
	}
}

// What a token says can be read in it: no secret may get there.
func TestTokenHasNoSecret(t *testing.T) {
	key := must(New())
	text := must(key.Sign(said, now))
	header := must(base64.RawURLEncoding.DecodeString(strings.Split(text, ".")[0]))
	var h map[string]any
	if err := json.Unmarshal(header, &h); err != nil {
		t.Fatal(err)
	}
	if jwk := h["jwk"].(map[string]any); jwk["d"] != nil || len(jwk) != 4 {
		t.Errorf("the key in the header: %v", jwk)
	}
}

func FuzzVerify(f *testing.F) {
	key := must(New())
	f.Add(must(key.Sign(said, now)))
	f.Fuzz(func(t *testing.T, text string) {
		got, err := verifier().Verify(text)
		if err == nil && got.Thumbprint != key.Thumbprint() && got.UID == "" {
			t.Errorf("taken: %+v", got)
		}
	})
}
