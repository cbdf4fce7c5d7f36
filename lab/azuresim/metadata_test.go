package azuresim_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
)

// machineIdentity returns a managed identity with a new key.
func (a *azure) machineIdentity(t *testing.T, clientID string) azuresim.MachineIdentity {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	a.AddApplication(azuresim.Application{ClientID: clientID, ObjectID: "0" + clientID[1:],
		Name: "vm", ResourceID: groupID + "/providers/Microsoft.Compute/virtualMachines/vm",
		PublicKey: string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))})
	return azuresim.MachineIdentity{Authority: a.server.URL, TenantID: azuresim.DefaultTenant,
		ClientID: clientID,
		Key: string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
			Bytes: x509.MarshalPKCS1PrivateKey(key)}))}
}

// toLocal redirects requests for the metadata address to a test server; all else is azidentity's
// own.
type toLocal struct{ server *httptest.Server }

func (l toLocal) Do(r *http.Request) (*http.Response, error) {
	local := r.Clone(r.Context())
	local.URL.Host = strings.TrimPrefix(l.server.URL, "http://")
	return http.DefaultClient.Do(local)
}

func TestIMDSWithAzidentity(t *testing.T) {
	a := start(t)
	system, assigned := a.machineIdentity(t, "eeeeeeee-0000-0000-0000-000000000001"),
		a.machineIdentity(t, "eeeeeeee-0000-0000-0000-000000000002")
	imds := httptest.NewServer(&azuresim.VMMetadata{Identities: []azuresim.MachineIdentity{system,
		assigned}, Client: a.server.Client()})
	t.Cleanup(imds.Close)
	for _, tt := range []struct {
		name string
		id   azidentity.ManagedIDKind
		err  string
	}{
		{"system-assigned", nil, ""},
		{"user-assigned", azidentity.ClientID("eeeeeeee-0000-0000-0000-000000000002"), ""},
		{"not assigned", azidentity.ClientID("eeeeeeee-0000-0000-0000-000000000009"),
			"the requested identity isn't assigned to this resource"},
	} {
		cred, err := azidentity.NewManagedIdentityCredential(
			&azidentity.ManagedIdentityCredentialOptions{ID: tt.id,
				ClientOptions: policy.ClientOptions{Transport: toLocal{imds}}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = cred.GetToken(t.Context(),
			policy.TokenRequestOptions{Scopes: []string{azuresim.AKSServer + "/.default"}})
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.err)
		}
	}
}

func TestHIMDSWantsItsFileRead(t *testing.T) {
	a := start(t)
	identity, dir := a.machineIdentity(t, "eeeeeeee-0000-0000-0000-000000000003"), t.TempDir()
	himds := httptest.NewServer(&azuresim.ArcMetadata{Identity: func() (azuresim.MachineIdentity,
		error) {
		return identity, nil
	}, Tokens: dir, Client: a.server.Client()})
	t.Cleanup(himds.Close)
	ask := func(authorization string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			himds.URL+"/metadata/identity/oauth2/token?api-version=2020-06-01&resource="+
				azuresim.AKSServer, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Metadata", "true")
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response
	}
	challenge := ask("")
	path, ok := strings.CutPrefix(challenge.Header.Get("Www-Authenticate"), "Basic realm=")
	if !ok || challenge.StatusCode != 401 || filepath.Dir(path) != dir {
		t.Fatalf("challenge: %s, %v", challenge.Status, challenge.Header)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the challenge's file: %v, %v", info, err)
	}
	secret, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if response := ask("Basic guess"); response.StatusCode != 403 {
		t.Errorf("a guess: %s", response.Status)
	}
	if response := ask("Basic " + string(secret)); response.StatusCode != 200 {
		t.Errorf("the secret: %s", response.Status)
	}
	if response := ask("Basic " + string(secret)); response.StatusCode != 403 {
		t.Errorf("the secret again: %s", response.Status)
	}
}
