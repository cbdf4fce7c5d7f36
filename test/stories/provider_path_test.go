package stories

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azpolicy "github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/identity"
)

// client returns a client that reaches the provider without a network, with any proxy.
func (w *world) client(func(*http.Request) (*url.URL, error)) *http.Client {
	c := follow.NewClient(nil, nil)
	if c.Transport = w.provider; w.provider == nil {
		c.Transport = &provider{down: true}
	}
	return c
}

// identity returns the credential of the node's identity: from the machine's Azure, if it has one.
func (w *world) identity(c config.Config) (identity.Credential, error) {
	if w.cluster.azure != nil {
		return identity.Node(c.Azure, c.ProxyFunc())
	}
	return principal{c.Azure.ServicePrincipal}, nil
}

// principal is a service principal whose issuer needs no network, and refuses wrongSecret.
type principal struct{ *config.ServicePrincipal }

// GetToken implements azcore.TokenCredential.
func (p principal) GetToken(
	context.Context, azpolicy.TokenRequestOptions,
) (azcore.AccessToken, error) {
	secret := p.ClientSecret.Reveal()
	if secret == wrongSecret {
		return azcore.AccessToken{}, &azidentity.AuthenticationFailedError{RawResponse: &http.Response{
			StatusCode: http.StatusUnauthorized,
			Body:       io.NopCloser(strings.NewReader(`{"error_codes":[7000215]}`)),
		}}
	}
	token := azcore.AccessToken{Token: "of " + secret, ExpiresOn: time.Now().Add(time.Hour)}
	return token, nil
}

// The secret of the node at its join, and hosts of its provider.
const (
	firstSecret = "s3cret~of.the-node"
	usualHost   = "management.azure.com"
	wrongHost   = "wrong.example"
)

// polledWith returns a change to another secret of the polling identity.
func polledWith(secret string) func(map[string]any) {
	return func(c map[string]any) {
		monitored(c)
		sp := c["azure"].(map[string]any)["servicePrincipal"].(map[string]any)
		sp["clientSecret"] = secret
	}
}

// at returns a change to another host of the provider.
func at(host string) func(map[string]any) {
	return func(c map[string]any) {
		c["agent"].(map[string]any)["monitoring"] = map[string]any{"endpoint": "https://" + host}
	}
}

// answersAt sets the answer of a host; nil leaves it to the provider.
func (p *provider) answersAt(host string, answer func(*http.Request) (*http.Response, error)) {
	p.set(func() { p.hosts = map[string]func(*http.Request) (*http.Response, error){host: answer} })
}

// onTrial fails the test unless all requests to a host are trials.
func (s *serviceStory) onTrial(
	answer func(*http.Request) (*http.Response, error),
) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("X-Ms-Flexnode-Trial") != "true" {
			s.t.Errorf("%s %s is no trial", r.Method, r.URL)
		}
		return answer(r)
	}
}

// fails returns the answer of an unreachable host.
func fails(err error) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

// versionIs reports whether the node runs on a version.
func (s *serviceStory) versionIs(version string) func() bool {
	return func() bool { return s.read(saved.StateDir+"/config-version.txt") == version+"\n" }
}

// failed reports whether the provider was told that a version has failed, and the reason.
func (s *serviceStory) failed(version, why string) func() bool {
	return func() bool {
		c := s.provider.said().Config
		return c != nil && c.Failed != nil && c.Failed.Version == version && c.Applied == "7" &&
			strings.Contains(c.Failed.Message, why)
	}
}

// keeps fails unless credentials.json has one secret and not another.
func (w *world) keeps(secret, gone string) {
	w.t.Helper()
	kept, err := os.ReadFile(w.root + saved.StateDir + "/credentials.json")
	if err != nil || !strings.Contains(string(kept), secret) || strings.Contains(string(kept), gone) {
		w.t.Errorf("want %q and not %q in credentials.json: %s %v", secret, gone, kept, err)
	}
}

// A wrong secret of the polling identity is refused, although kubelet does not need it: the node
// continues unchanged, reports the reason, and accepts the corrected version.
func TestWrongPollingSecret(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		kubelet := s.started()
		s.provider.offers(s.delivery("8", polledWith(wrongSecret), readyTimeout("1m"), pods(42)))
		s.until(5*time.Minute, "the failure is reported", s.failed("8", "AADSTS7000215"))
		s.healthy("110")
		if n := kubelet(); n != 0 {
			t.Errorf("kubelet was started %d times", n)
		}
		s.keeps(firstSecret, wrongSecret)
		list := s.is().Rejected
		if len(list) != 1 || !strings.Contains(list[0].Reason, "resource provider") {
			t.Errorf("status says %+v", list)
		}
		s.provider.offers(s.delivery("9", polledWith(newSecret), readyTimeout("1m"), pods(43)))
		s.until(2*time.Minute, "the corrected version is applied", s.takes("43"))
	})
}

// Entra ID itself refuses the secret, not a cached token.
func TestWrongPollingSecretAtEntra(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.simulateAzure(t, canary)
	polls := func(secret string) func(map[string]any) {
		return func(c map[string]any) {
			c["continuousMonitoring"] = true
			azure := c["azure"].(map[string]any)
			azure["tenantId"], azure["authorityHost"] = azuresim.DefaultTenant, w.cluster.issuer
			azure["resourceManagerEndpoint"] = w.cluster.issuer
			azure["servicePrincipal"] = map[string]any{"clientId": clientID, "clientSecret": secret}
		}
	}
	w.offer = w.delivery("7", polls(canary))
	w.provider = &provider{offer: w.offer, changed: make(chan struct{})}
	if err := w.joinsByURL(); err != nil {
		t.Fatal(err)
	}
	applied, since := w.pointer("applied"), w.kubeletSince()
	w.offer = w.delivery("8", polls(wrongSecret), pods(42))
	if err := w.takesOffer(); !refused(err) || !strings.Contains(err.Error(), "AADSTS7000215") {
		t.Errorf("the error is %v; want a refusal with the answer of Entra ID", err)
	}
	w.goesOn(applied, since)
	w.keeps(canary, wrongSecret)
}

// A version with an endpoint at which the provider refuses the node, or another server answers, is
// not applied and is reported; the next version is applied.
func TestRefusedByTheProvider(t *testing.T) {
	for name, c := range map[string]struct {
		polls func(*http.Request) (*http.Response, error)
		says  string
	}{
		"401": {instead(401, "application/json", `{"error":{"code":"InvalidToken"}}`),
			"InvalidToken"},
		"404":        {instead(404, "application/json", bareNotFound), "ResourceNotFound"},
		"wrong name": {otherName, "other.example"},
	} {
		t.Run(name, func(t *testing.T) {
			followed(t, func(t *testing.T, s *serviceStory, _ string) {
				s.provider.answersAt(wrongHost, s.onTrial(c.polls))
				s.provider.offers(s.delivery("8", monitored, at(wrongHost), readyTimeout("1m"), pods(42)))
				s.until(5*time.Minute, "the failure is reported", s.failed("8", c.says))
				s.healthy("110")
				s.provider.offers(s.delivery("9", monitored, readyTimeout("1m"), pods(43)))
				s.until(2*time.Minute, "the next version is applied", s.takes("43"))
			})
		})
	}
}

// otherName fails like TLS with the certificate of another server.
func otherName(*http.Request) (*http.Response, error) {
	cert := &x509.Certificate{DNSNames: []string{"other.example"}}
	return nil, &tls.CertificateVerificationError{
		Err: x509.HostnameError{Certificate: cert, Host: wrongHost},
	}
}

// unreachable returns the errors of an unreachable provider.
func unreachable() map[string]error {
	return map[string]error{
		"DNS": &net.DNSError{Err: "no such host", Name: wrongHost, IsNotFound: true},
		"refused": &net.OpError{
			Op: "dial", Net: "tcp", Addr: addr("wrong.example:443"), Err: syscall.ECONNREFUSED,
		},
		"timeout": context.DeadlineExceeded,
	}
}

// A version with an unreachable endpoint, or whose identity has no role yet, waits, and is applied
// once the endpoint answers: nothing is rejected meanwhile, and the agent polls as before.
func TestUnreachableEndpointWaits(t *testing.T) {
	ways := map[string]func(*http.Request) (*http.Response, error){
		"no role": instead(403, "application/json", `{"error":{"code":"AuthorizationFailed"}}`),
	}
	for name, err := range unreachable() {
		ways[name] = fails(err)
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			followed(t, func(t *testing.T, s *serviceStory, _ string) {
				s.provider.answersAt(wrongHost, s.onTrial(way))
				s.provider.offers(s.delivery("8", monitored, at(wrongHost), readyTimeout("1m"), pods(42)))
				s.sleep(30 * time.Minute)
				s.healthy("110")
				if len(s.is().Rejected) > 0 || s.silent() {
					t.Errorf("status: %s", s.raw())
				}
				s.provider.answersAt(wrongHost, nil)
				s.until(10*time.Minute, "the version is applied", s.takes("42"))
			})
		})
	}
}

// A version with an unreachable endpoint is replaced by the next one, which comes from the present
// endpoint.
func TestWrongEndpointIsCorrected(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.provider.answersAt(wrongHost, fails(unreachable()["DNS"]))
		s.provider.offers(s.delivery("8", monitored, at(wrongHost), readyTimeout("1m"), pods(42)))
		s.sleep(30 * time.Minute)
		s.healthy("110")
		s.provider.offers(s.delivery("9", monitored, readyTimeout("1m"), pods(43)))
		s.until(2*time.Minute, "the corrected version is applied", s.takes("43"))
	})
}

// asked returns the last host of the provider that was asked.
func (s *serviceStory) asked() (host string) {
	s.provider.set(func() { host = s.provider.host })
	return host
}

// A rolled back version does not affect how the provider is polled, and its secret is erased.
func TestRolledBackWayToTheProvider(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.onKubelet(func() error {
			if s.takes("42")() {
				return errors.New("kubelet does not like this")
			}
			return nil
		})
		change := []func(map[string]any){polledWith(newSecret), at(wrongHost), readyTimeout("1m")}
		s.provider.offers(s.delivery("8", append(change, pods(42))...))
		s.until(5*time.Minute, "the failure is reported", s.failed("8", "kubelet"))
		s.keeps(firstSecret, newSecret)
		s.healthy("110")
		if s.asked() == wrongHost {
			t.Error("the provider is asked as the version said that was rolled back")
		}
	})
}

// A first join does not need the provider, and warns if that does not answer; a refused identity
// ends it before any change.
func TestJoinWithoutAProvider(t *testing.T) {
	join := func(t *testing.T, secret string) (*world, string, error) {
		w := newWorld(t)
		w.offer = w.delivery("7", polledWith(secret))
		if err := w.receive(w.offer); err != nil {
			t.Fatal(err)
		}
		before := w.tree()
		return w, before, w.joinsByURL()
	}
	t.Run("unreachable", func(t *testing.T) {
		t.Parallel()
		w, _, err := join(t, firstSecret)
		if err != nil || !strings.Contains(w.log.String(), "no route to host") {
			t.Errorf("it ended with %v, and the log is\n%s", err, w.log.String())
		}
	})
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		w, before, err := join(t, wrongSecret)
		if !refused(err) || !strings.Contains(err.Error(), "AADSTS7000215") {
			t.Errorf("it ended with %v", err)
		}
		w.same(before)
	})
}
