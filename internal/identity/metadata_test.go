package identity

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/azuresim/azuresimtest"
	"github.com/Azure/AKSFlexNode/internal/config"
)

// askMetadata gets a token for kubelet from the metadata service of an Arc machine at a URL.
func askMetadata(t *testing.T, endpoint string) error {
	t.Helper()
	// azidentity takes these for an Arc machine's; on a real one it finds the agent's files.
	t.Setenv("IDENTITY_ENDPOINT", endpoint+"/metadata/identity/oauth2/token")
	t.Setenv("IMDS_ENDPOINT", endpoint)
	c := config.Azure{TenantID: tenant, Arc: &config.Arc{},
		KubeletCredential: config.CredentialToken}
	credential, err := Kubelet(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = credential.GetToken(t.Context(),
		policy.TokenRequestOptions{Scopes: []string{AKSServer + "/.default"}})
	return Explain(err, TokenFor("kubelet", c))
}

// The Arc agent's metadata service is asked by azidentity's own source, which reads its challenge
// only where it belongs.
func TestArcMetadataIsConfined(t *testing.T) {
	azure(t)
	outside := filepath.Join(t.TempDir(), "stolen.key")
	if err := os.WriteFile(outside, []byte("a foreign secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	himds := httptest.NewServer(&azuresim.ArcMetadata{Identity: func() (azuresim.MachineIdentity,
		error) {
		return azuresim.MachineIdentity{}, nil
	}, Tokens: t.TempDir(), Realm: outside})
	t.Cleanup(himds.Close)
	err := askMetadata(t, himds.URL)
	if err == nil || !strings.HasPrefix(err.Error(), "cannot get a token for kubelet: ") ||
		strings.Contains(err.Error(), "foreign") ||
		!strings.Contains(err.Error(), "azcmagent show") ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("a challenge outside of the agent's directory: %v", err)
	}
}

func TestMetadataServiceIsAbsent(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	err := askMetadata(t, gone.URL)
	if err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(gone.URL, "http://")) ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("no metadata service: %v", err)
	}
}

func TestSecretFromElsewhere(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"good": "s3cret\n", "empty": "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("CREDENTIALS_DIRECTORY", "")
	tests := []struct{ file, credentials, want, err string }{
		{filepath.Join(dir, "good"), "", "s3cret", ""},
		{filepath.Join(dir, "empty"), "", "", "it is empty"},
		{filepath.Join(dir, "missing"), "", "", "no such file"},
		{"good", dir, "s3cret", ""},
		{"good", "", "", "LoadCredential=good (systemd 251"},
	}
	for _, tt := range tests {
		t.Setenv("CREDENTIALS_DIRECTORY", tt.credentials)
		got, err := secret(config.ServicePrincipal{ClientSecretFile: tt.file})
		if got != tt.want || (err != nil) != (tt.err != "") || err != nil &&
			!strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s with %q: %q, %v", tt.file, tt.credentials, got, err)
		}
	}
}

// A certificate file holds the certificate and its key; what else it holds is refused in words.
func TestCertificateFile(t *testing.T) {
	sim := azure(t)
	leaf, key := azuresimtest.Certificate(t)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw}))
	sim.AddApplication(azuresim.Application{ClientID: clientID, ObjectID: objectID,
		Certificates: []string{cert}})
	private := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
	stranger, _ := azuresimtest.Certificate(t)
	other := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: stranger.Raw}))
	dir := t.TempDir()
	for _, tt := range []struct{ name, text, err string }{
		{"both", cert + private, ""},
		{"others too", other + cert + private + other, ""},
		{"no key", cert, "certificate and its private key as PEM"},
		{"nonsense", "nonsense", "certificate and its private key as PEM"},
	} {
		c := principal()
		c.ServicePrincipal.ClientSecret, c.ServicePrincipal.CertificateFile = "",
			filepath.Join(dir, tt.name)
		if err := os.WriteFile(c.ServicePrincipal.CertificateFile, []byte(tt.text),
			0o600); err != nil {
			t.Fatal(err)
		}
		credential, err := Kubelet(c, nil)
		if err == nil {
			_, err = credential.GetToken(t.Context(),
				policy.TokenRequestOptions{Scopes: []string{AKSServer + "/.default"}})
		}
		if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.err)
		}
		if is, err := Certificate(*c.ServicePrincipal); (err != nil) != (tt.err != "") ||
			err == nil && !is.Equal(leaf) {
			t.Errorf("%s: it proves itself with %v, %v", tt.name, is, err)
		}
	}
	file := filepath.Join(dir, "another's")
	if err := os.WriteFile(file, []byte(other+private), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Certificate(config.ServicePrincipal{CertificateFile: file})
	if err == nil || !strings.Contains(err.Error(), "none of its certificates matches its private "+
		"key") {
		t.Errorf("a key without its certificate: %v", err)
	}
}

// metadata is a metadata service of App Service's kind, which counts.
type metadata struct{ asked int }

func (m *metadata) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	m.asked++
	fmt.Fprintf(w, `{"access_token":"t","expires_on":"%d","resource":%q,"token_type":"Bearer"}`,
		time.Now().Add(12*time.Hour).Unix(), AKSServer)
}
