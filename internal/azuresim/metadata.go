package azuresim

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// MachineIdentity is a managed identity as its machine stores it: with the private key whose public
// key is registered in Entra.
type MachineIdentity struct {
	Authority string `json:"authority"` // URL of Entra, without the tenant
	TenantID  string `json:"tenantId"`
	ClientID  string `json:"clientId"`
	// Key is a PKCS #1 private key as PEM.
	Key string `json:"key"`
}

// token requests a token with a signed assertion and returns Entra's response, in the v1.0 format
// that metadata services return.
func (m MachineIdentity) token(ctx context.Context, client *http.Client,
	resource string) (status int, body []byte, err error) {
	key, err := m.privateKey()
	if err != nil {
		return 0, nil, err
	}
	endpoint := m.Authority + "/" + m.TenantID + "/oauth2/token"
	now := time.Now()
	assertion, err := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.RegisteredClaims{
		Issuer: m.ClientID, Subject: m.ClientID, Audience: jwt.ClaimStrings{endpoint},
		ID:        uuid.NewString(),
		NotBefore: jwt.NewNumericDate(now),
		ExpiresAt: jwt.NewNumericDate(now.Add(10 * time.Minute)),
	}).SignedString(key)
	if err != nil {
		return 0, nil, err
	}
	form := url.Values{
		"grant_type": {"client_credentials"}, "client_id": {m.ClientID}, "resource": {resource},
		"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
		"client_assertion":      {assertion},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint,
		strings.NewReader(form.Encode()))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(io.LimitReader(response.Body, 64<<10))
	return response.StatusCode, body, err
}

func (m MachineIdentity) privateKey() (*rsa.PrivateKey, error) {
	block, _ := pem.Decode([]byte(m.Key))
	if block == nil {
		return nil, errors.New("cannot read the identity's key: it is not PEM")
	}
	return x509.ParsePKCS1PrivateKey(block.Bytes)
}

// pass responds with Entra's response to a token request of a machine's identity.
func pass(w http.ResponseWriter, r *http.Request, m MachineIdentity, client *http.Client) {
	status, body, err := m.token(r.Context(), client, r.URL.Query().Get("resource"))
	if err != nil {
		metadataError(w, http.StatusInternalServerError, "service_unavailable", err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func metadataError(w http.ResponseWriter, status int, code, text string) {
	arm.WriteJSON(w, status, map[string]string{"error": code, "error_description": text})
}

// ArcTokens is the directory of the challenge files, accessible to root only.
const ArcTokens = "/var/opt/azcmagent/tokens"

// ArcMetadata is HIMDS, the metadata service of an Arc machine, for 127.0.0.1:40342. A caller
// proves that it is root by reading a file.
type ArcMetadata struct {
	// Identity returns the machine's identity, or an error if it is not connected.
	Identity func() (MachineIdentity, error)
	// Tokens is the directory of the challenge files; "" is ArcTokens.
	Tokens string
	// Realm, if set, is named as the challenge's file in place of the real path.
	Realm string
	// Client connects to Entra; nil is http.DefaultClient.
	Client *http.Client
	// Fault breaks the service.
	Fault Fault

	mu         sync.Mutex
	challenges map[string]string // secret -> its file
}

func (h *ArcMetadata) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.Fault.answer(w, r) {
		return
	}
	switch {
	case r.URL.Path != "/metadata/identity/oauth2/token":
		http.NotFound(w, r)
		return
	case r.Header.Get("Metadata") != "true":
		metadataError(w, http.StatusBadRequest, "invalid_request",
			"Required metadata header not specified or not correct")
		return
	case r.URL.Query().Get("resource") == "" || r.URL.Query().Get("api-version") == "":
		metadataError(w, http.StatusBadRequest, "invalid_request",
			"Required query variable 'resource' or 'api-version' is missing")
		return
	}
	identity, err := h.Identity()
	if err != nil {
		metadataError(w, http.StatusInternalServerError, "service_unavailable", err.Error())
		return
	}
	secret, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Basic ")
	if !ok {
		h.challenge(w)
		return
	}
	if !h.redeem(secret) {
		metadataError(w, http.StatusForbidden, "unauthorized",
			"The challenge is not known or has been used")
		return
	}
	pass(w, r, identity, client(h.Client))
}

func client(c *http.Client) *http.Client {
	if c == nil {
		return http.DefaultClient
	}
	return c
}

// challenge writes a secret to a file that only root can read and responds with its path.
func (h *ArcMetadata) challenge(w http.ResponseWriter) {
	dir := first(h.Tokens, ArcTokens)
	secret := random()
	path := filepath.Join(dir, uuid.NewString()+".key")
	if err := os.WriteFile(path, []byte(secret), 0o600); err != nil {
		metadataError(w, http.StatusInternalServerError, "service_unavailable", err.Error())
		return
	}
	h.mu.Lock()
	if h.challenges == nil {
		h.challenges = map[string]string{}
	}
	h.challenges[secret] = path
	h.mu.Unlock()
	w.Header().Set("Www-Authenticate", "Basic realm="+first(h.Realm, path))
	metadataError(w, http.StatusUnauthorized, "unauthorized",
		"Read the file of the realm and answer with what it holds")
}

func (h *ArcMetadata) redeem(secret string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	path, ok := h.challenges[secret]
	if ok {
		delete(h.challenges, secret)
		_ = os.Remove(path) // the file is used up; any left over goes with the directory
	}
	return ok
}

// VMMetadata is IMDS, the metadata service of an Azure VM, for 169.254.169.254:80.
type VMMetadata struct {
	// Identities are assigned to the VM. The first is the system-assigned one.
	Identities []MachineIdentity
	// Client connects to Entra; nil is http.DefaultClient.
	Client *http.Client
	// Fault breaks the service.
	Fault Fault
}

func (v *VMMetadata) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if v.Fault.answer(w, r) {
		return
	}
	switch {
	case r.URL.Path != "/metadata/identity/oauth2/token":
		http.NotFound(w, r)
	case r.Header.Get("Metadata") != "true":
		metadataError(w, http.StatusBadRequest, "invalid_request",
			"Required metadata header not specified")
	case r.Header.Get("X-Forwarded-For") != "":
		metadataError(w, http.StatusBadRequest, "invalid_request",
			"The request has come through a proxy")
	default:
		v.answer(w, r)
	}
}

func (v *VMMetadata) answer(w http.ResponseWriter, r *http.Request) {
	want := r.URL.Query().Get("client_id")
	for i, identity := range v.Identities {
		if want == "" && i == 0 || strings.EqualFold(want, identity.ClientID) {
			pass(w, r, identity, client(v.Client))
			return
		}
	}
	metadataError(w, http.StatusBadRequest, "invalid_request",
		fmt.Sprintf("Identity not found: %q", want))
}
