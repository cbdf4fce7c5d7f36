package azuresim

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// The registry speaks the protocol of Azure Container Registry (AAD-OAuth): an Entra token is
// exchanged for a refresh token, and that for a short-lived access token to pull with. A request
// without one gets a challenge (distribution, token authentication). There is no anonymous pull.
const (
	registryAudience = "https://containerregistry.azure.net"
	exchangePath     = "/oauth2/exchange"
	pullPath         = "/oauth2/token"
	pullAction       = "Microsoft.ContainerRegistry/registries/pull/read"
	refreshUser      = "00000000-0000-0000-0000-000000000000"
	// RoleAcrPull allows to pull from a registry.
	RoleAcrPull = "7f951dda-4ed3-4680-a7ca-43fe172d538d"
)

func (s *Sim) serveRegistry(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	id := s.world.Registry
	s.mu.Unlock()
	if id == "" || s.Images == nil {
		http.NotFound(w, r)
		return
	}
	path := strings.ToLower(r.URL.Path)
	switch bearer, shown := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); {
	case path == exchangePath && r.Method == http.MethodPost:
		c, err := s.verify(origin(r), r.PostFormValue("access_token"), []string{registryAudience})
		if err != nil || r.PostFormValue("grant_type") != "access_token" ||
			r.PostFormValue("service") != r.Host || !s.Allowed(c.OID, pullAction, id, false) {
			s.refusePull(w)
			return
		}
		s.registryToken(w, r, "refresh_token", c.OID, 3*time.Hour)
	case path == pullPath:
		user, refresh, ok := r.BasicAuth()
		if r.Method == http.MethodPost {
			if r.PostFormValue("grant_type") != "refresh_token" {
				arm.WriteJSON(w, http.StatusBadRequest, map[string]any{"errors": []any{}})
				return
			}
			user, refresh, ok = refreshUser, r.PostFormValue("refresh_token"), true
		}
		oid, err := s.registryCaller(r, "refresh_token", refresh)
		if !ok || user != refreshUser || err != nil || !s.Allowed(oid, pullAction, id, false) {
			s.refusePull(w)
			return
		}
		s.registryToken(w, r, "access_token", oid, 5*time.Minute)
	case shown && r.Method != http.MethodPut && r.Method != http.MethodPost:
		if _, err := s.registryCaller(r, "access_token", bearer); err == nil {
			s.Images.ServeHTTP(w, r)
			return
		}
		fallthrough
	default:
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s%s",service="%s"`,
			origin(r), pullPath, r.Host))
		s.refusePull(w)
	}
}

func (s *Sim) refusePull(w http.ResponseWriter) {
	arm.WriteJSON(w, http.StatusUnauthorized, map[string]any{"errors": []any{map[string]any{
		"code": "UNAUTHORIZED", "message": "authentication required, visit " +
			"https://aka.ms/acr/authorization for more information."}}})
}

// registryToken responds with a registry token of a kind, which names the JSON member and is the
// token's audience.
func (s *Sim) registryToken(w http.ResponseWriter, r *http.Request, kind, oid string,
	life time.Duration) {
	text, err := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.RegisteredClaims{
		Issuer: r.Host, Subject: oid, Audience: jwt.ClaimStrings{kind},
		ExpiresAt: jwt.NewNumericDate(s.now().Add(life)),
	}).SignedString(s.key)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	arm.WriteJSON(w, http.StatusOK, map[string]string{kind: text})
}

// registryCaller verifies a registry token and returns the object id of its identity.
func (s *Sim) registryCaller(r *http.Request, kind, text string) (string, error) {
	var c jwt.RegisteredClaims
	_, err := jwt.ParseWithClaims(text, &c,
		func(*jwt.Token) (any, error) { return s.key.Public(), nil },
		jwt.WithValidMethods([]string{"RS256"}), jwt.WithIssuer(r.Host), jwt.WithAudience(kind),
		jwt.WithTimeFunc(s.now), jwt.WithExpirationRequired())
	return c.Subject, err
}
