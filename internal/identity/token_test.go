package identity

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
)

// issuer is an issuer with a clock, whose tokens are good for five minutes.
type issuer struct {
	mu   sync.Mutex
	now  time.Time
	down bool
	n    int
}

func (i *issuer) clock() time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.now
}

func (i *issuer) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.n++
	if i.down {
		return azcore.AccessToken{}, errors.New("down")
	}
	return azcore.AccessToken{Token: i.now.Format(time.TimeOnly), ExpiresOn: i.now.Add(5 * time.Minute)}, nil
}

func (i *issuer) cache(dir string) Cache {
	return Cache{Dir: dir, Key: "k", Now: i.clock, Credential: func() (Credential, error) { return i, nil }}
}

// An hour of five-minute tokens, asked for every ten seconds, with the issuer down for ever two minutes of ten: there is always a
// token, and it is always good.
func TestAnHourOfShortTokens(t *testing.T) {
	i := &issuer{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	c := i.cache(filepath.Join(t.TempDir(), "run"))
	for second := 0; second < 3600; second += 10 {
		i.mu.Lock()
		i.now = i.now.Add(10 * time.Second)
		i.down = second%600 >= 480
		i.mu.Unlock()
		token, err := c.Token(t.Context())
		if err != nil {
			t.Fatalf("after %d s: %v", second, err)
		}
		if !token.Expires.After(i.now.Add(margin)) {
			t.Fatalf("after %d s: a token that ends in %s", second, token.Expires.Sub(i.now))
		}
	}
	if most := 3600/200 + 60; i.n > most {
		t.Errorf("the issuer was asked %d times, want at most %d", i.n, most)
	}
}

// Fifty processes at once make one request.
func TestFiftyAtOnceAskOnce(t *testing.T) {
	sim := azure(t)
	sim.Adjust(func(k *azuresim.Knobs) {
		k.Faults = map[azuresim.Service]azuresim.Fault{azuresim.Entra: {Latency: 50 * time.Millisecond, Match: "token"}}
	})
	dir := filepath.Join(t.TempDir(), "run")
	var wg sync.WaitGroup
	tokens := make([]string, 50)
	for i := range tokens {
		wg.Go(func() {
			c := Cache{Dir: dir, Key: "k", Scope: AKSServer + "/.default", Credential: func() (Credential, error) { return Kubelet(principal(), nil) }}
			token, err := c.Token(t.Context())
			if err != nil {
				t.Error(err)
			}
			tokens[i] = token.Value
		})
	}
	wg.Wait()
	for _, token := range tokens {
		if token != tokens[0] || token == "" {
			t.Fatal("not everybody has the same token")
		}
	}
	if n := sim.Requests(azuresim.Entra); n > 3 { // discovery, and one token
		t.Errorf("%d requests to the issuer", n)
	}
	info, err := os.Stat(filepath.Join(dir, "token.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("token.json: %v, %v", info, err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its directory: %v, %v", info, err)
	}
}

func TestCacheTrustsOnlyItsOwn(t *testing.T) {
	i := &issuer{now: time.Now()}
	dir := t.TempDir()
	if _, err := i.cache(dir).Token(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Cache){
		"another identity": func(c *Cache) { c.Key = "other" },
		"half a file": func(*Cache) {
			if err := os.WriteFile(filepath.Join(dir, "token.json"), []byte(`{"token":"x`), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		before := i.n
		c := i.cache(dir)
		spoil(&c)
		if _, err := c.Token(t.Context()); err != nil || i.n != before+1 {
			t.Errorf("%s: %v, asked %d times", name, err, i.n-before)
		}
	}
	i.down = true
	c := i.cache(dir)
	c.Key = "third"
	if token, err := c.Token(t.Context()); err == nil {
		t.Errorf("with nothing kept and the issuer down: %+v", token)
	}
}

// Where nothing can be kept, a token is handed out all the same.
func TestNowhereToKeep(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	i := &issuer{now: time.Now()}
	c := i.cache(filepath.Join(file, "below"))
	warned := 0
	c.Warn = func(error) { warned++ }
	if token, err := c.Token(t.Context()); err != nil || token.Value == "" || warned == 0 {
		t.Errorf("%+v, %v, %d warnings", token, err, warned)
	}
}

func TestWriteExec(t *testing.T) {
	token := Token{Value: "v", Expires: time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC), Refresh: time.Date(2026, 1, 1, 0, 40, 0, 5, time.UTC)}
	for _, tt := range []struct{ info, want, err string }{
		{"", `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"v","expirationTimestamp":"2026-01-01T00:40:00Z"}}`, ""},
		{`{"apiVersion":"client.authentication.k8s.io/v1beta1"}`, `{"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential","status":{"token":"v","expirationTimestamp":"2026-01-01T00:40:00Z"}}`, ""},
		{`{"apiVersion":"client.authentication.k8s.io/v1alpha1"}`, "", "only v1 and v1beta1"},
		{`{`, "", "KUBERNETES_EXEC_INFO"},
	} {
		var b bytes.Buffer
		err := WriteExec(&b, token, tt.info)
		if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) || strings.TrimSpace(b.String()) != tt.want {
			t.Errorf("%q: %s, %v", tt.info, b.String(), err)
		}
	}
}
