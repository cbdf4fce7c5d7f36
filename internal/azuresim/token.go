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

// AKSServer is the Entra application of every AKS API server: the audience of tokens for
// Kubernetes.
const AKSServer = "6dae42f8-4368-4678-94ff-3960e28e3630"

// claims are those of an access token of version 1.0, which ARM and AKS ask for.
type claims struct {
	jwt.RegisteredClaims
	// Aud stands before RegisteredClaims.Audience, which is always a list; Entra writes one string.
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

// issuer returns the issuer of the tenant's tokens, as clients see it; sts.windows.net in Azure.
func (s *Sim) issuer(origin string) string { return origin + "/" + s.tenant() + "/" }

func (s *Sim) tenant() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.world.TenantID
}

// lifetime returns the validity of a client's tokens, and by how much their clock is ahead.
func (s *Sim) lifetime(r *http.Request) (lifetime, skew time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.knobs[s.knobsOf(r)]
	return cmp.Or(k.TokenLifetime, time.Hour), k.Skew
}

// skew returns the time by which Azure's own clock is ahead.
func (s *Sim) skew() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.knobs[""].Skew
}

// audience turns a requested scope or resource into the audience; "" when there is no such
// resource. An application is one by its id, and by the URI that Entra ID makes of that.
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

// armAudiences are the names that ARM goes by, without their last slash.
func armAudiences(r *http.Request) []string {
	return []string{origin(r), "https://management.azure.com",
		"https://management.core.windows.net"}
}

// sign makes an access token and returns it with the seconds that it is good for.
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
	// as long as the thumbprint of a certificate, which it is in Azure
	return base64.RawURLEncoding.EncodeToString(sum[:20])
}

// jwks is the signing key as discovery/keys answers it.
func (s *Sim) jwks() map[string]any {
	b64 := base64.RawURLEncoding.EncodeToString
	return map[string]any{"keys": []any{map[string]any{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": s.kid(), "x5t": s.kid(),
		"n": b64(s.key.N.Bytes()), "e": b64(big.NewInt(int64(s.key.E)).Bytes()),
	}}}
}

// Verify returns the object id of a token's principal, as an API server that trusts this Azure
// does.
func (s *Sim) Verify(origin, token, audience string) (oid string, err error) {
	s.start()
	c, err := s.verify(origin, token, []string{audience})
	return c.OID, err
}

// verify accepts a token of our own for one of the audiences.
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
