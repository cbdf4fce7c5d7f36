package verifier

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/Azure/AKSFlexNode/internal/machinekey"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

var (
	now  = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	said = machinekey.Claims{
		UID: "uid", Audience: "https://provider.example", Boot: machinekey.NewBoot(),
	}
)

// verifier is a provider's, at the time now, with one nonce that holds.
func verifier() Verifier {
	return Verifier{
		Audiences: []string{said.Audience}, Now: func() time.Time { return now },
		Nonce: func(nonce string) (time.Time, bool) {
			return now.Add(machinekey.Lifetime - time.Minute), nonce == "given"
		},
	}
}

func TestVerify(t *testing.T) {
	key := machinekey.New()
	bound := said
	bound.Request = machinekey.RequestOf("POST", "/x/reportStatus", []byte("{}"))
	got := must(verifier().Verify(key.Sign(bound, now)))
	if got.Claims != bound || got.Thumbprint != key.Thumbprint() ||
		!got.Ends.Equal(now.Add(machinekey.Lifetime+Leeway)) {
		t.Errorf("got %+v", got)
	}
	bound.Nonce = "given"
	late := must(verifier().Verify(key.Sign(bound, now.Add(time.Hour))))
	if !got.Issued.Equal(now) || !late.Issued.Equal(now.Add(-time.Minute)) ||
		!late.Signed.Equal(now.Add(time.Hour)) {
		t.Errorf("made at %s; with a nonce at %s, by its clock %s", got.Issued, late.Issued, late.Signed)
	}
	if got.Request.Digest == machinekey.Digest([]byte("{} ")) {
		t.Error("another body has the same digest")
	}
}

func TestTimes(t *testing.T) {
	key := machinekey.New()
	for name, test := range map[string]struct {
		at    time.Duration
		nonce string
		good  bool
	}{
		"now":                      {0, "", true},
		"almost expired":           {-machinekey.Lifetime, "", true},
		"expired":                  {-machinekey.Lifetime - time.Minute, "", false},
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
			_, err := verifier().Verify(key.Sign(c, now.Add(test.at)))
			if (err == nil) != test.good || err != nil && !errors.Is(err, ErrTime) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// privateOf returns the private key in the file of a machine's key.
func privateOf(key *machinekey.Key) *ecdsa.PrivateKey {
	block, _ := pem.Decode(key.PEM())
	return must(x509.ParsePKCS8PrivateKey(block.Bytes)).(*ecdsa.PrivateKey)
}

// publicOf returns the public key that the tokens of a machine's key have in their header.
func publicOf(key *machinekey.Key) (public machinekey.PublicKey) {
	header, _, _ := strings.Cut(key.Sign(said, now), ".")
	var h struct{ JWK *machinekey.PublicKey }
	h.JWK = &public
	if err := json.Unmarshal(must(base64.RawURLEncoding.DecodeString(header)), &h); err != nil {
		panic(err)
	}
	return public
}

// header and payload are the parts of a token that a test changes.
type (
	header  = map[string]any
	payload = machinekey.Payload
)

// change signs a token that differs from a right one.
func change(t *testing.T, key *machinekey.Key, differ func(header, *payload)) string {
	t.Helper()
	token := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{})
	text := key.Sign(said, now)
	var c machinekey.Payload
	parsed, _, err := jwt.NewParser().ParseUnverified(text, &c)
	if err != nil {
		t.Fatal(err)
	}
	token.Header = parsed.Header
	differ(token.Header, &c)
	token.Claims = c
	return must(token.SignedString(privateOf(key)))
}

func TestRefused(t *testing.T) {
	key, other := machinekey.New(), machinekey.New()
	right := key.Sign(said, now)
	parts := strings.Split(right, ".")
	body := must(base64.RawURLEncoding.DecodeString(parts[1]))
	altered := base64.RawURLEncoding.EncodeToString(
		[]byte(strings.Replace(string(body), `"uid"`, `"uie"`, 1)))
	unsigned := jwt.NewWithClaims(jwt.SigningMethodNone, jwt.MapClaims{"sub": "uid"})
	rs := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{"sub": "uid"})
	hs := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": "uid"})
	for _, t := range []*jwt.Token{unsigned, rs, hs} {
		t.Header["typ"], t.Header["kid"] = machinekey.TokenType, key.Thumbprint()
		t.Header["jwk"] = publicOf(key)
	}
	for name, text := range map[string]string{
		"nothing":          "",
		"altered claims":   parts[0] + "." + altered + "." + parts[2],
		"no signature":     must(unsigned.SignedString(jwt.UnsafeAllowNoneSignatureType)),
		"RSA":              must(rs.SignedString(must(rsa.GenerateKey(rand.Reader, 2048)))),
		"HMAC":             must(hs.SignedString([]byte(publicOf(key).X))),
		"too long":         right + strings.Repeat("A", MaxLength),
		"another key":      change(t, key, func(h header, _ *payload) { h["jwk"] = publicOf(other) }),
		"another key's id": change(t, key, func(h header, _ *payload) { h["kid"] = other.Thumbprint() }),
		"another key, and its id": change(t, key, func(h header, _ *payload) {
			h["jwk"], h["kid"] = publicOf(other), other.Thumbprint()
		}),
		"no key": change(t, key, func(h header, _ *payload) { delete(h, "jwk") }),
		"a point that is not on the curve": change(t, key, func(h header, _ *payload) {
			p := publicOf(key)
			p.Y = p.X
			h["jwk"], h["kid"] = p, p.Thumbprint()
		}),
		"a key written in another way": change(t, key, func(h header, _ *payload) {
			p := publicOf(key)
			p.X = p.X[:4] + "\n" + p.X[4:]
			h["jwk"], h["kid"] = p, p.Thumbprint()
		}),
		"another kind": change(t, key, func(h header, _ *payload) { h["typ"] = "JWT" }),
		"another audience": change(t, key, func(_ header, c *payload) {
			c.RegisteredClaims.Audience = jwt.ClaimStrings{"https://other.example"}
		}),
		"two audiences": change(t, key, func(_ header, c *payload) {
			to := &c.RegisteredClaims.Audience
			*to = append(*to, "https://other.example")
		}),
		"no boot":     change(t, key, func(_ header, c *payload) { c.Boot = "" }),
		"a long boot": change(t, key, func(_ header, c *payload) { c.Boot += machinekey.NewBoot() }),
		"no subject":  change(t, key, func(_ header, c *payload) { c.Subject = "" }),
		"no end":      change(t, key, func(_ header, c *payload) { c.ExpiresAt = nil }),
		"no issue":    change(t, key, func(_ header, c *payload) { c.IssuedAt = nil }),
		"a long life": change(t, key, func(_ header, c *payload) {
			c.ExpiresAt = jwt.NewNumericDate(now.Add(time.Hour))
		}),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := verifier().Verify(text); err == nil {
				t.Errorf("taken: %+v", got)
			}
		})
	}
	if _, err := verifier().Verify(change(t, key, func(header, *payload) {})); err != nil {
		t.Errorf("the unchanged token is refused: %v", err)
	}
	v := verifier()
	v.Audiences = nil
	c := said
	c.Audience = ""
	if _, err := v.Verify(key.Sign(c, now)); err == nil {
		t.Error("a provider without an address takes a token for none")
	}
}

func FuzzVerify(f *testing.F) {
	key := machinekey.New()
	f.Add(key.Sign(said, now))
	f.Fuzz(func(t *testing.T, text string) {
		got, err := verifier().Verify(text)
		if err == nil && got.Thumbprint != key.Thumbprint() && got.UID == "" {
			t.Errorf("taken: %+v", got)
		}
	})
}
