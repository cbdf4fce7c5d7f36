package service

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/host"
)

// hanging is an identity whose issuer does not answer.
type hanging struct{ asked chan struct{} }

func (h hanging) GetToken(
	ctx context.Context, _ policy.TokenRequestOptions,
) (azcore.AccessToken, error) {
	close(h.asked)
	<-ctx.Done()
	return azcore.AccessToken{}, ctx.Err()
}

// While a token for a poll is awaited, which may take minutes, the daemon's worker goes on: it
// reports what it has found, and takes up another way to ask the provider.
func TestNobodyWaitsForAToken(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	c := config.Config{ContinuousMonitoring: true}
	c.Azure.ResourceManagerEndpoint = "https://management.azure.com"
	c.Azure.ServicePrincipal = &config.ServicePrincipal{ClientID: "x", ClientSecret: "y"}
	machine := host.New(t.TempDir(), log)
	a := &change.Agent{Env: inspect.Env{Reader: machine, Log: log}, Machine: machine}
	in := change.Input{Config: c, Resource: &config.Resource{ID: "/x", UID: "u"}}
	issuer := hanging{make(chan struct{})}
	a.Identity = func(config.Config) (azcore.TokenCredential, error) { return issuer, nil }
	f := Follow(t.Context(), a, in, nil)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := f.token(ctx)
		ended <- err
	}()
	select {
	case <-issuer.asked:
	case err := <-ended:
		t.Fatal(err)
	}
	f.told(inspect.Status{})
	f.Unusable("8", errors.New("of another node"))
	c.Agent.Monitoring.Interval = "20s"
	f.change(follow.MannerOf(c), follow.Manner{})
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

// A node that is to ask the provider's own listener from now on trusts the CAs that it has joined
// with, and no longer when it asks Resource Manager again.
func TestTrustFollowsTheManner(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	bundle, err := config.WithJoining([]byte(`{}`), config.Joining{ProviderCA: ca})
	root := t.TempDir()
	if err == nil {
		err = os.MkdirAll(filepath.Join(root, saved.StateDir), 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(root, saved.BundleFile), bundle, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	machine := host.New(root, log)
	a := &change.Agent{Env: inspect.Env{Reader: machine, Root: root, Log: log}, Machine: machine}
	c := config.Config{ContinuousMonitoring: true}
	in := change.Input{Config: c, Resource: &config.Resource{ID: "/x", UID: "u"}}
	f := Follow(t.Context(), a, in, nil)
	f.begin(t.Context())
	for _, endpoint := range []string{s.URL, config.ResourceManager} {
		c.Agent.Monitoring.Endpoint = endpoint
		f.change(follow.MannerOf(c), follow.Manner{})
		f.begin(t.Context())
		resp, err := f.Resource.Client.Get(s.URL)
		if err == nil {
			resp.Body.Close()
		}
		if (err == nil) != (endpoint == s.URL) {
			t.Errorf("asking %s: %v", endpoint, err)
		}
	}
}

// A process that has run for long and trusts no CA of the provider gives way to one that reads the
// system's CAs again.
func TestDistrustRenews(t *testing.T) {
	unknown := fmt.Errorf("cannot poll: %w", &tls.CertificateVerificationError{
		Err: x509.UnknownAuthorityError{}})
	ended := func(ca bool) error {
		return &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{
			Cert: &x509.Certificate{IsCA: ca}, Reason: x509.Expired}}
	}
	for _, test := range []struct {
		age  time.Duration
		job  string
		err  error
		want int
	}{
		{2 * time.Hour, "rest", unknown, 1}, {time.Minute, "rest", unknown, 0},
		{2 * time.Hour, "reconcile", unknown, 0}, // it may be draining
		{2 * time.Hour, "rest", errors.New("connection refused"), 0},
		{2 * time.Hour, "rest", ended(true), 1}, {2 * time.Hour, "rest", ended(false), 0},
	} {
		renewed := 0
		f := &Following{live: NewLive("1"), again: func() {}, Renew: func() { renewed++ }}
		f.live.work.Started, f.live.work.Job = time.Now().Add(-test.age), test.job
		f.polled(follow.Answer{}, test.err, time.Minute)
		if renewed != test.want {
			t.Errorf("%s, %v: renewed %d times", test.age, test.err, renewed)
		}
	}
}
