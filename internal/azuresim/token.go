package azuresim

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
)

// AKSServer is the Entra application id of every AKS API server, the audience of tokens for
// Kubernetes.
const AKSServer = "6dae42f8-4368-4678-94ff-3960e28e3630"

// claims are the claims of a version 1.0 access token, the version that ARM and AKS use.
type claims struct {
	jwt.RegisteredClaims
	// Aud replaces RegisteredClaims.Audience, which is always a list; Entra writes one string.
	Aud        string   `json:"aud"`
	AppID      string   `json:"appid,omitempty"`
	AppIDACR   string   `json:"appidacr,omitempty"`
	IDP        string   `json:"idp,omitempty"`
	IDTyp      string   `json:"idtyp,omitempty"`
	OID        string   `json:"oid,omitempty"`
	Name       string   `json:"name,omitempty"`
	UPN        string   `json:"upn,omitempty"`
	PreferName string   `json:"preferred_username,omitempty"`
	Groups     []string `json:"groups,omitempty"`
	SCP        string   `json:"scp,omitempty"`
	TID        string   `json:"tid,omitempty"`
	UTI        string   `json:"uti,omitempty"`
	Ver        string   `json:"ver,omitempty"`
	MIRID      string   `json:"xms_mirid,omitempty"`
}

// issuer returns the issuer of the tenant's tokens for clients; sts.windows.net in Azure.
func (s *Sim) issuer(origin string) string { return origin + "/" + s.tenant() + "/" }

func (s *Sim) tenant() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.world.TenantID
}

// lifetime returns the lifetime of a client's tokens and how far their clock is ahead.
func (s *Sim) lifetime(r *http.Request) (lifetime, skew time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.knobs[s.knobsOf(r)]
	return cmp.Or(k.TokenLifetime, time.Hour), k.Skew
}

// skew returns how far Azure's own clock is ahead.
func (s *Sim) skew() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.knobs[""].Skew
}

// audience returns the audience for a requested scope or resource, "" if no such resource exists.
// An application is named by its client id, also as the URI api://{id}.
func (s *Sim) audience(r *http.Request, scope string) string {
	for _, one := range strings.Fields(scope) {
		if resource, ok := strings.CutSuffix(one, "/.default"); ok {
			scope = resource
			break
		}
	}
	bare := strings.TrimRight(scope, "/")
	switch {
	case strings.EqualFold(bare, AKSServer), bare == registryAudience,
		slices.Contains(armAudiences(r), bare):
		return scope
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.world.Applications {
		if strings.EqualFold(strings.TrimPrefix(bare, "api://"), a.ClientID) {
			return scope
		}
	}
	return ""
}

// armAudiences returns the audiences of ARM, without a trailing slash.
func armAudiences(r *http.Request) []string {
	return []string{origin(r), "https://management.azure.com",
		"https://management.core.windows.net"}
}

// sign returns a signed access token and its lifetime in seconds.
func (s *Sim) sign(r *http.Request, c claims) (string, int, error) {
	lifetime, skew := s.lifetime(r)
	now := s.now().Add(skew)
	c.Issuer, c.Subject, c.TID, c.IDP = s.issuer(origin(r)), c.OID, s.tenant(), s.issuer(origin(r))
	c.IssuedAt, c.NotBefore, c.ExpiresAt = jwt.NewNumericDate(now), jwt.NewNumericDate(now),
		jwt.NewNumericDate(now.Add(lifetime))
	c.UTI, c.Ver = base64.RawURLEncoding.EncodeToString([]byte(uuid.NewString()))[:22], "1.0"
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, c)
	token.Header["kid"], token.Header["x5t"] = s.kid(), s.kid()
	text, err := token.SignedString(s.key)
	return text, int(lifetime.Seconds()), err
}

func (a Application) claims(audience string) claims {
	c := claims{AppID: a.ClientID, AppIDACR: "1", IDTyp: "app", OID: a.ObjectID,
		MIRID: a.ResourceID, Groups: a.Groups}
	if a.ResourceID != "" {
		c.AppIDACR = "2"
	}
	c.Aud = audience
	return c
}

func (s *Sim) kid() string {
	sum := sha256.Sum256(s.key.N.Bytes())
	// as long as a certificate's thumbprint, which Azure uses
	return base64.RawURLEncoding.EncodeToString(sum[:20])
}

// jwks returns the signing key as served by discovery/keys.
func (s *Sim) jwks() map[string]any {
	b64 := base64.RawURLEncoding.EncodeToString
	return map[string]any{"keys": []any{map[string]any{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": s.kid(), "x5t": s.kid(),
		"n": b64(s.key.N.Bytes()), "e": b64(big.NewInt(int64(s.key.E)).Bytes()),
	}}}
}

// Verify returns the object id of a token's principal, for an API server that trusts this Azure.
func (s *Sim) Verify(origin, token, audience string) (oid string, err error) {
	s.start()
	c, err := s.verify(origin, token, []string{audience})
	return c.OID, err
}

// verify verifies a token of this Azure for one of the audiences.
func (s *Sim) verify(origin, text string, audiences []string) (claims, error) {
	var c claims
	_, err := jwt.ParseWithClaims(text, &c,
		func(*jwt.Token) (any, error) { return s.key.Public(), nil },
		jwt.WithValidMethods([]string{"RS256"}), jwt.WithIssuer(s.issuer(origin)),
		jwt.WithTimeFunc(func() time.Time { return s.now().Add(s.skew()) }),
		jwt.WithLeeway(5*time.Minute), jwt.WithExpirationRequired())
	if err != nil {
		return c, err
	}
	if !slices.Contains(audiences, strings.TrimRight(c.Aud, "/")) {
		return c, fmt.Errorf("the token is for %s: %w", c.Aud, jwt.ErrTokenInvalidAudience)
	}
	return c, nil
}
