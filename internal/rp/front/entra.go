package front

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// Issuer is an issuer of callers' tokens, for one tenant.
type Issuer struct {
	// URL is the claim iss, such as https://sts.windows.net/<tenant>/ (v1.0) or
	// https://login.microsoftonline.com/<tenant>/v2.0.
	URL string `json:"url"`
	// TenantID is the claim tid that its tokens must have.
	TenantID string `json:"tenantId"`
	// KeysURL is the URL of its signing keys (jwks_uri).
	KeysURL string `json:"keysURL"`
}

// leeway limits the difference between clocks.
const leeway = 5 * time.Minute

// Entra authenticates callers by their Entra ID access tokens.
type Entra struct {
	issuers   []Issuer
	keys      map[string]keyfunc.Keyfunc // by issuer
	audiences []string
	now       func() time.Time
	tokens    tokens
}

// NewEntra fetches the issuers' keys; Entra fetches them again for a token with an unknown key. The
// client must trust the certificates of the issuers' servers.
func NewEntra(
	ctx context.Context, issuers []Issuer, audiences []string, client *http.Client,
	now func() time.Time,
) (*Entra, error) {
	e := &Entra{
		issuers: issuers, keys: map[string]keyfunc.Keyfunc{}, audiences: audiences, now: now,
		tokens: newTokens(20_000, now), // machines use their keys instead
	}
	for _, issuer := range issuers {
		keys, err := keyfunc.NewDefaultOverrideCtx(ctx, []string{issuer.KeysURL}, keyfunc.Override{
			Client: client, HTTPTimeout: 10 * time.Second, RefreshInterval: time.Hour,
			// Any caller can send tokens with an unknown key.
			RefreshUnknownKID: rate.NewLimiter(rate.Every(10*time.Second), 3),
		})
		if err != nil {
			return nil, fmt.Errorf("cannot fetch the keys of %s: %w", issuer.URL, err)
		}
		e.keys[issuer.URL] = keys
	}
	return e, nil
}

type accessToken struct {
	jwt.RegisteredClaims
	TenantID  string `json:"tid"`
	ObjectID  string `json:"oid"`
	AppID     string `json:"appid"` // version 1.0
	AZP       string `json:"azp"`   // version 2.0
	Type      string `json:"idtyp"`
	Scopes    string `json:"scp"` // permissions that a person delegated to an application
	UPN       string `json:"upn"`
	Preferred string `json:"preferred_username"`
	MachineID string `json:"xms_mirid"`
}

// Authenticate implements Authenticator.
func (e *Entra) Authenticate(r *http.Request) (Caller, error) {
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || text == "" {
		return Caller{}, e.challenge("AuthenticationFailed",
			"Authentication failed. The 'Authorization' header is missing or has no bearer token.")
	}
	if len(text) > 16<<10 {
		return Caller{}, e.challenge("InvalidAuthenticationToken", "The access token is too long.")
	}
	if caller, ok := e.tokens.caller(text); ok {
		return caller, nil
	}
	token, err := e.verify(text)
	if err != nil {
		return Caller{}, e.refuse(err)
	}
	caller := token.caller()
	e.tokens.remember(text, caller, token.ExpiresAt.Add(leeway))
	return caller, nil
}

var errTenant = errors.New("the token is from another tenant")

func (e *Entra) verify(text string) (accessToken, error) {
	var token accessToken
	find := func(t *jwt.Token) (any, error) {
		keys, ok := e.keys[token.Issuer]
		if !ok {
			return nil, jwt.ErrTokenInvalidIssuer
		}
		return keys.Keyfunc(t)
	}
	_, err := jwt.ParseWithClaims(text, &token, find, jwt.WithValidMethods([]string{"RS256"}),
		jwt.WithExpirationRequired(), jwt.WithLeeway(leeway), jwt.WithTimeFunc(e.now))
	if err != nil {
		return token, err
	}
	isOurs := func(aud string) bool {
		return slices.Contains(e.audiences, strings.TrimRight(aud, "/"))
	}
	if !slices.ContainsFunc(token.Audience, isOurs) {
		return token, jwt.ErrTokenInvalidAudience
	}
	i := slices.IndexFunc(e.issuers, func(i Issuer) bool { return i.URL == token.Issuer })
	if !strings.EqualFold(e.issuers[i].TenantID, token.TenantID) {
		return token, errTenant
	}
	return token, nil
}

func (t accessToken) caller() Caller {
	c := Caller{
		TenantID: t.TenantID, ObjectID: t.ObjectID, AppID: cmp.Or(t.AppID, t.AZP),
		MachineID: t.MachineID, Type: "Application",
	}
	c.Name = cmp.Or(t.UPN, t.Preferred, c.AppID)
	switch { // a token of an application itself never has scopes or a person's name
	case t.Type != "" && !strings.EqualFold(t.Type, "app") || // if the issuer sets it
		t.Scopes != "" || t.UPN != "" || t.Preferred != "":
		c.Type = "User"
	case t.MachineID != "":
		c.Type = "ManagedIdentity"
	}
	return c
}

// refuse returns the error for an invalid token, in Resource Manager's words.
func (e *Entra) refuse(err error) error {
	code, message := "InvalidAuthenticationToken", "is invalid."
	switch {
	case errors.Is(err, jwt.ErrTokenExpired):
		code = "ExpiredAuthenticationToken"
		message = "has expired. Obtain a new one and send the request again."
	case errors.Is(err, errTenant):
		code, message = "InvalidAuthenticationTokenTenant", "is from the wrong tenant."
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		message = "is for another audience. Ask for one for " + strings.Join(e.audiences, " or ") + "."
	case errors.Is(err, jwt.ErrTokenInvalidIssuer):
		message = "is from an issuer that is not trusted here."
	}
	return e.challenge(code, "The access token "+message)
}

func (e *Entra) challenge(code, message string) error {
	return &refusal{
		answer: arm.Errorf(401, code, "%s", message), header: "WWW-Authenticate", // RFC 6750, section 3
		value: fmt.Sprintf(`Bearer authorization_uri=%q, error="invalid_token", error_description=%q`,
			strings.TrimSuffix(e.issuers[0].URL, "/"), message),
	}
}
