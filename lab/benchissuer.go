package lab

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// benchIssuer signs the tokens with which a fleet registers its keys. Each agent has its own
// identity; the lab's Azure has only a few, and would take minutes.
type benchIssuer struct {
	key      *rsa.PrivateKey
	audience string
}

const (
	issuerURL  = bareURL + "/issuer/"
	issuerKeys = "/issuer/keys"
	issuerKey  = "bench"
)

func newBenchIssuer(audience string) (benchIssuer, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return benchIssuer{}, fmt.Errorf("cannot make the key of the bench's tokens: %w", err)
	}
	return benchIssuer{key, audience}, nil
}

// keysFile returns the path of the public key in the format of jwks_uri.
func (l *Lab) keysFile() string { return l.path("bench-keys.json") }

// publish writes the public key for the bare handler to serve.
func (i benchIssuer) publish(path string) error {
	b64 := base64.RawURLEncoding.EncodeToString
	text, err := json.Marshal(object{"keys": []object{{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": issuerKey,
		"n": b64(i.key.N.Bytes()), "e": b64(big.NewInt(int64(i.key.E)).Bytes()),
	}}})
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	return os.WriteFile(path, text, 0o600)
}

// benchIdentity returns the client id of an agent's identity.
func benchIdentity(n int) string { return fmt.Sprintf("cccccccc-0000-4000-8000-%012d", n) }

// token returns an agent's access token.
func (i benchIssuer) token(n int) (string, error) {
	now := time.Now()
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{
		"iss": issuerURL, "aud": i.audience, "tid": Tenant, "idtyp": "app", "ver": "1.0",
		"appid": benchIdentity(n), "oid": fmt.Sprintf("dddddddd-0000-4000-8000-%012d", n),
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(12 * time.Hour).Unix(),
	})
	token.Header["kid"] = issuerKey
	return token.SignedString(i.key)
}

// trustBench configures a provider to accept the fleet's tokens after its next start.
func (l *Lab) trustBench() error {
	return l.changeSettings(func(settings object) {
		authentication, _ := settings["authentication"].(map[string]any)
		issuers, _ := authentication["issuers"].([]any)
		for _, i := range issuers {
			if known, _ := i.(map[string]any); known["url"] == issuerURL {
				return
			}
		}
		authentication["issuers"] = append(issuers, object{
			"url": issuerURL, "tenantId": Tenant, "keysURL": bareURL + issuerKeys,
		})
		settings["polls"] = object{"perSecond": 0, "waitSeconds": 50}
	})
}

// changeSettings changes the settings of the first replica, which apply after its next start.
func (l *Lab) changeSettings(change func(settings object)) error {
	path := l.replicaPath(0, "settings.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("cannot read the provider's settings: %w", err)
	}
	var settings object
	if err := json.Unmarshal(text, &settings); err != nil {
		return fmt.Errorf("cannot read the provider's settings: %w", err)
	}
	change(settings)
	if text, err = json.MarshalIndent(settings, "", "  "); err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	return os.WriteFile(path, text, 0o600)
}
