package azuresim

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// serveEntra serves /{tenant}/... as Entra ID does, and /adfs/..., where the tenant is implied and
// which clients use without asking login.microsoftonline.com about it first.
func (s *Sim) serveEntra(w http.ResponseWriter, r *http.Request) {
	tenant, path, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
	if tenant == "devicelogin" {
		s.deviceLogin(w, r)
		return
	}
	if !strings.EqualFold(tenant, s.tenant()) && tenant != "adfs" && tenant != "common" &&
		tenant != "organizations" {
		problem{400, 90002, "invalid_request",
			fmt.Sprintf("Tenant '%s' not found. Check to make sure you have the correct tenant "+
				"ID and are signing into the correct cloud.", tenant)}.write(w)
		return
	}
	switch r.Method + " " + strings.ToLower(path) {
	case "GET .well-known/openid-configuration":
		s.discovery(w, r, tenant, s.issuer(origin(r)))
	case "GET v2.0/.well-known/openid-configuration":
		s.discovery(w, r, tenant, s.issuer(origin(r))+"v2.0")
	case "GET discovery/keys", "GET discovery/v2.0/keys":
		arm.WriteJSON(w, http.StatusOK, s.jwks())
	case "POST oauth2/token":
		s.token(w, r, r.PostFormValue("resource"))
	case "POST oauth2/v2.0/token":
		s.token(w, r, r.PostFormValue("scope"))
	case "POST oauth2/devicecode", "POST oauth2/v2.0/devicecode":
		s.deviceCode(w, r)
	default:
		http.NotFound(w, r)
	}
}

// discovery serves the provider configuration of OpenID Connect Discovery 1.0, section 4.2.
func (s *Sim) discovery(w http.ResponseWriter, r *http.Request, tenant, issuer string) {
	base := origin(r) + "/" + tenant
	if tenant == "adfs" {
		issuer = base
	}
	arm.WriteJSON(w, http.StatusOK, map[string]any{
		"issuer":                                issuer,
		"authorization_endpoint":                base + "/oauth2/v2.0/authorize",
		"token_endpoint":                        base + "/oauth2/v2.0/token",
		"device_authorization_endpoint":         base + "/oauth2/v2.0/devicecode",
		"jwks_uri":                              base + "/discovery/v2.0/keys",
		"response_types_supported":              []string{"code", "id_token", "code id_token"},
		"subject_types_supported":               []string{"pairwise"},
		"id_token_signing_alg_values_supported": []string{"RS256"},
		"scopes_supported": []string{"openid", "profile", "email",
			"offline_access"},
		"token_endpoint_auth_methods_supported": []string{"client_secret_post", "private_key_jwt"},
		"tenant_region_scope":                   nil,
		"cloud_instance_name":                   r.Host,
	})
}

// problem is an error of the token endpoint (RFC 6749, section 5.2) with Entra's additions.
type problem struct {
	status int
	code   int
	err    string
	text   string
}

func (p problem) write(w http.ResponseWriter) {
	trace, correlation, now := uuid.NewString(), uuid.NewString(),
		time.Now().UTC().Format("2006-01-02 15:04:05Z")
	arm.WriteJSON(w, p.status, map[string]any{
		"error": p.err,
		"error_description": fmt.Sprintf("AADSTS%d: %s Trace ID: %s Correlation ID: %s "+
			"Timestamp: %s", p.code, p.text, trace, correlation, now),
		"error_codes": []int{p.code}, "timestamp": now, "trace_id": trace,
		"correlation_id": correlation,
		"error_uri":      fmt.Sprintf("https://login.microsoftonline.com/error?code=%d", p.code),
	})
}

// token serves the token endpoint; what is the scope (v2.0) or the resource (v1.0).
func (s *Sim) token(w http.ResponseWriter, r *http.Request, what string) {
	switch grant := r.PostFormValue("grant_type"); grant {
	case "client_credentials":
		s.clientCredentials(w, r, what)
	case "urn:ietf:params:oauth:grant-type:device_code", "device_code":
		s.redeemDeviceCode(w, r)
	case "refresh_token":
		s.refresh(w, r, what)
	default:
		problem{400, 70003, "unsupported_grant_type",
			fmt.Sprintf("The app requested an unsupported grant type '%s'.", grant)}.write(w)
	}
}

func (s *Sim) clientCredentials(w http.ResponseWriter, r *http.Request, what string) {
	id := r.PostFormValue("client_id")
	app, ok := s.application(func(a Application) bool { return strings.EqualFold(a.ClientID, id) })
	if !ok {
		problem{400, 700016, "unauthorized_client",
			fmt.Sprintf("Application with identifier '%s' was not found in the directory '%s'. "+
				"This can happen if the application has not been installed by the administrator "+
				"of the tenant or consented to by any user in the tenant. You may have sent "+
				"your authentication request to the wrong tenant.", id,
				s.tenant())}.write(w)
		return
	}
	if p := s.proves(app, r); p != nil {
		p.write(w)
		return
	}
	if app.ConsentMissing {
		problem{400, 65001, "invalid_grant",
			fmt.Sprintf("The user or administrator has not consented to use the application "+
				"with ID '%s' named '%s'. Send an interactive authorization request for this "+
				"user and resource.", app.ClientID, app.Name)}.write(w)
		return
	}
	aud := s.audience(r, what)
	if aud == "" {
		problem{400, 500011, "invalid_resource",
			fmt.Sprintf("The resource principal named %s was not found in the tenant named %s. "+
				"This can happen if the application has not been installed by the administrator "+
				"of the tenant or consented to by any user in the tenant.", what,
				s.tenant())}.write(w)
		return
	}
	s.grant(w, r, app.claims(aud), what, nil)
}

// proves verifies a client's secret or signed assertion (RFC 7523, section 3).
func (s *Sim) proves(app Application, r *http.Request) *problem {
	if assertion := r.PostFormValue("client_assertion"); assertion != "" {
		return s.provesKey(app, r, assertion)
	}
	secret := r.PostFormValue("client_secret")
	for _, known := range app.Secrets {
		switch {
		case known.Value != secret:
		case !known.Expires.IsZero() && !s.now().Before(known.Expires):
			return &problem{401, 7000222, "invalid_client",
				fmt.Sprintf("The provided client secret keys for app '%s' are expired. Visit "+
					"the Azure portal to create new keys for your app: "+
					"https://aka.ms/NewClientSecret, or consider using certificate "+
					"credentials for added security: https://aka.ms/certCreds.",
					app.ClientID)}
		default:
			return nil
		}
	}
	return &problem{401, 7000215, "invalid_client",
		fmt.Sprintf("Invalid client secret provided. Ensure the secret being sent in the "+
			"request is the client secret value, not the client secret ID, for a secret added "+
			"to app '%s'.", app.ClientID)}
}

func (s *Sim) provesKey(app Application, r *http.Request, assertion string) *problem {
	keys, err := app.keys()
	for _, key := range keys {
		_, err = jwt.Parse(assertion, func(*jwt.Token) (any, error) { return key.public, nil },
			jwt.WithValidMethods([]string{"RS256", "PS256", "ES256"}),
			jwt.WithIssuer(app.ClientID), jwt.WithSubject(app.ClientID), jwt.WithTimeFunc(s.now),
			jwt.WithLeeway(5*time.Minute), jwt.WithExpirationRequired())
		switch {
		case err == nil && !key.until.IsZero() && s.now().After(key.until):
			return &problem{401, 700027, "invalid_client",
				"The certificate with identifier used to sign the client assertion is expired on " +
					"application. [Reason - The key used is expired.]"}
		case err == nil:
			return nil
		}
	}
	return &problem{401, 700027, "invalid_client",
		fmt.Sprintf("The certificate with identifier used to sign the client assertion is not "+
			"registered on application. [Reason - The key was not found or the signature is not "+
			"valid: %v]", err)}
}

// grant responds with an access token and the members in more, which may be nil.
func (s *Sim) grant(w http.ResponseWriter, r *http.Request, c claims, scope string,
	more map[string]any) {
	token, seconds, err := s.sign(r, c)
	if err != nil {
		problem{500, 90006, "server_error",
			"A transient error has occurred. Please try again."}.write(w)
		return
	}
	answer := map[string]any{"token_type": "Bearer", "expires_in": seconds,
		"ext_expires_in": seconds, "access_token": token}
	if !strings.Contains(r.URL.Path, "v2.0") { // the v1.0 endpoint returns strings
		expires := s.now().Add(time.Duration(seconds) * time.Second).Unix()
		answer = map[string]any{
			"token_type": "Bearer", "expires_in": fmt.Sprint(seconds),
			"ext_expires_in": fmt.Sprint(seconds),
			"expires_on":     fmt.Sprint(expires), "not_before": fmt.Sprint(s.now().Unix()),
			"resource": scope, "access_token": token,
		}
	}
	for key, value := range more {
		answer[key] = value
	}
	w.Header().Set("Cache-Control", "no-store")
	arm.WriteJSON(w, http.StatusOK, answer)
}

// clientInfo returns the client_info by which MSAL identifies the account.
func clientInfo(oid, tenant string) string {
	text, err := json.Marshal(map[string]string{"uid": oid, "utid": tenant})
	if err != nil {
		panic("internal error: " + err.Error())
	}
	return base64.RawURLEncoding.EncodeToString(text)
}
