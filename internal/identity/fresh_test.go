package identity

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/config"
)

const scope = AKSServer + "/.default"

// A fresh token comes from the issuer, however often it is asked for: a secret that has become
// wrong is found out while an old token is still good.
func TestFreshAsksTheIssuer(t *testing.T) {
	sim, c := azure(t), principal()
	fresh := func() (Token, error) {
		return Fresh(t.Context(), func() (Credential, error) { return Kubelet(c, nil) }, scope,
			TokenFor("kubelet", c))
	}
	token, err := fresh()
	if err != nil || token.Value == "" || !token.Refresh.Before(token.Expires) {
		t.Fatalf("%+v, %v", token, err)
	}
	c.ServicePrincipal.ClientSecret = "guess"
	if token, err := fresh(); err == nil || !strings.Contains(err.Error(), "AADSTS7000215") {
		t.Errorf("a wrong secret: %+v, %v", token, err)
	}
	c.ServicePrincipal.ClientSecret = canary
	before := sim.Requests(azuresim.Entra)
	if _, err := fresh(); err != nil || sim.Requests(azuresim.Entra) == before {
		t.Errorf("the issuer was not asked: %v", err)
	}
}

// The library's cache, which all managed identities of a process share, is bypassed.
func TestFreshBypassesTheProcessCache(t *testing.T) {
	i := &metadata{}
	server := httptest.NewServer(i)
	t.Cleanup(server.Close)
	t.Setenv("IDENTITY_ENDPOINT", server.URL)
	t.Setenv("IDENTITY_HEADER", "x") // the simplest of the sources: no challenge
	// An identity that no other test of this process has.
	c := config.Azure{ManagedIdentity: &config.ManagedIdentity{ClientID: objectID},
		KubeletCredential: config.CredentialToken}
	for n := 1; n <= 3; n++ {
		_, err := Fresh(t.Context(), func() (Credential, error) { return Kubelet(c, nil) }, scope,
			TokenFor("kubelet", c))
		if err != nil || i.asked != n {
			t.Errorf("%d: asked %d times, %v", n, i.asked, err)
		}
	}
}

// silent never answers.
type silent struct{}

func (silent) GetToken(ctx context.Context, _ policy.TokenRequestOptions) (azcore.AccessToken,
	error) {
	<-ctx.Done()
	return azcore.AccessToken{}, ctx.Err()
}

func TestFreshHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := Fresh(t.Context(), func() (Credential, error) { return silent{}, nil }, scope,
			Need{Doing: "get a token"})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != issuerTimeout {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// The key changes with every part of the identity, with its secret, and with what is in the files
// that hold the secret; it does not change with anything else.
func TestKey(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "credential")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	key := func(change func(*config.ServicePrincipal)) string {
		t.Helper()
		c := config.Azure{TenantID: tenant, ServicePrincipal: &config.ServicePrincipal{
			TenantID: tenant, ClientID: clientID, ClientSecret: canary}}
		change(c.ServicePrincipal)
		got, err := Key(c)
		if err != nil || len(got) != 64 {
			t.Fatalf("%q, %v", got, err)
		}
		return got
	}
	inFile := func(p *config.ServicePrincipal) { p.ClientSecret, p.ClientSecretFile = "", file }
	named := func(p *config.ServicePrincipal) {
		p.ClientSecret, p.ClientSecretFile = "", "credential"
	}
	certificate := func(p *config.ServicePrincipal) {
		p.ClientSecret, p.CertificateFile = "", file
	}
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	same := func(*config.ServicePrincipal) {}
	if first, again := key(same), key(same); first != again {
		t.Error("the same identity has two keys")
	}
	seen := map[string]string{key(same): "the first"}
	distinct := func(name, key string) {
		if other, ok := seen[key]; ok {
			t.Errorf("%s has the key of %s", name, other)
		}
		seen[key] = name
	}
	distinct("another secret", key(func(p *config.ServicePrincipal) { p.ClientSecret = "other" }))
	distinct("another client", key(func(p *config.ServicePrincipal) { p.ClientID = tenant }))
	for _, text := range []string{"one", "two"} {
		write(text)
		distinct("a file with "+text, key(inFile))
		distinct("a systemd credential with "+text, key(named))
		distinct("a certificate "+text, key(certificate))
	}
	write("two\n")
	if seen[key(inFile)] == "" {
		t.Error("a line end after the secret makes another key")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*config.ServicePrincipal){inFile, named, certificate} {
		c := principal()
		change(c.ServicePrincipal)
		if got, err := Key(c); err == nil {
			t.Errorf("without its file: %q", got)
		}
	}
	joined, joining := principal(), principal()
	joining.BootstrapToken = &config.BootstrapToken{Token: "abcdef.0123456789abcdef"}
	one, _ := Key(joined)
	if other, err := Key(joining); err != nil || one != other {
		t.Errorf("a bootstrap token changes the key: %v", err)
	}
}
