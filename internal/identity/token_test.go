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
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/go-cmp/cmp"
)

// issuer is an issuer with a clock, whose tokens are good for five minutes.
type issuer struct {
	mu   sync.Mutex
	now  time.Time
	slow time.Duration
	n    int
	// down fails, and empty answers without a token.
	down, empty bool
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
	time.Sleep(i.slow) // within a bubble of synctest
	if i.empty {
		return azcore.AccessToken{ExpiresOn: i.now.Add(time.Hour)}, nil
	}
	if i.down {
		return azcore.AccessToken{}, errors.New("down")
	}
	return azcore.AccessToken{Token: i.now.Format(time.TimeOnly),
		ExpiresOn: i.now.Add(5 * time.Minute)}, nil
}

func (i *issuer) cache(dir string) Cache {
	return Cache{Dir: dir, Key: "k", Now: i.clock, Boot: Uptime, Warn: func(error) {},
		Credential: func() (Credential, error) { return i, nil }}
}

// An hour of five-minute tokens, asked for every ten seconds, with the issuer down for ever two
// minutes of ten: there is always a token, and it is always good.
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
	dir := filepath.Join(t.TempDir(), "run")
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{now: time.Now(), slow: time.Second}
		var wg sync.WaitGroup
		tokens := make([]string, 50)
		for n := range tokens {
			wg.Go(func() {
				token, err := i.cache(dir).Token(t.Context())
				if err != nil {
					t.Error(err)
				}
				tokens[n] = token.Value
			})
		}
		wg.Wait()
		for _, token := range tokens {
			if token != tokens[0] || token == "" {
				t.Fatal("not everybody has the same token")
			}
		}
		if i.n != 1 {
			t.Errorf("%d requests to the issuer", i.n)
		}
	})
	info, err := os.Stat(filepath.Join(dir, fileName("k")))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token's file: %v, %v", info, err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its directory: %v, %v", info, err)
	}
}

// Who has no token and no time left gets an error, never an empty token, and leaves no lock behind.
func TestNoTimeLeft(t *testing.T) {
	i, dir := &issuer{now: time.Now()}, t.TempDir()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	token, err := i.cache(dir).Token(ended)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("nothing kept: %+v, %v", token, err)
	}
	if token, err := i.cache(dir).Token(t.Context()); err != nil || token.Value == "" {
		t.Fatalf("the next process: %+v, %v", token, err)
	}
	i.now, i.down = i.now.Add(4*time.Minute), true
	if token, err := i.cache(dir).Token(ended); err != nil || token.Value == "" {
		t.Errorf("a good token is kept: %+v, %v", token, err)
	}
}

// An answer without a token is an error.
func TestEmptyAnswer(t *testing.T) {
	i := &issuer{now: time.Now(), empty: true}
	if token, err := i.cache(t.TempDir()).Token(t.Context()); err == nil {
		t.Errorf("no error, but %+v", token)
	}
}

// A node that goes back to its former secret finds the token that it had, also while the issuer is
// down; Clean removes what no generation needs any more.
func TestEachKeyHasItsToken(t *testing.T) {
	i, dir := &issuer{now: time.Now()}, t.TempDir()
	of := func(key string) Cache {
		c := i.cache(dir)
		c.Key = key
		return c
	}
	old, wrong := strings.Repeat("a", 64), strings.Repeat("b", 64)
	first, err := of(old).Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i.down = true
	if token, err := of(wrong).Token(t.Context()); err == nil {
		t.Errorf("a new secret is given the token of the old one: %+v", token)
	}
	i.down, i.now = false, i.now.Add(time.Second)
	if _, err := of(wrong).Token(t.Context()); err != nil {
		t.Fatal(err)
	}
	i.down = true
	if back, err := of(old).Token(t.Context()); err != nil || back.Value != first.Value {
		t.Errorf("back to the old secret: %+v, %v; want %q", back, err, first.Value)
	}
	for _, name := range []string{".token-123", "ca.pem"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	i.down, i.now = false, i.now.Add(time.Second)
	if _, err := of(strings.Repeat("c", 64)).Token(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := of(old).Clean(); err != nil {
		t.Fatal(err)
	}
	want := []string{"ca.pem", "token-aaaaaaaaaaaaaaaa.json", lockFile}
	if diff := cmp.Diff(want, names(t, dir)); diff != "" {
		t.Errorf("after cleaning (-want +got):\n%s", diff)
	}
	if err := of(old).Clean(); err != nil || len(names(t, dir)) != 3 {
		t.Errorf("cleaned again: %v, %v", names(t, dir), err)
	}
	if err := (Cache{Dir: filepath.Join(dir, "nowhere")}).Clean(); err != nil {
		t.Errorf("a directory that does not exist: %v", err)
	}
}

// What another process writes right now is not cleaned away.
func TestCleanLeavesWhatIsBeingWritten(t *testing.T) {
	i, dir := &issuer{now: time.Now()}, t.TempDir()
	unlock, err := i.cache(dir).lock(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".token-1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := i.cache(dir).Clean(); err != nil || len(names(t, dir)) != 2 {
		t.Errorf("while it is written: %v, %v", names(t, dir), err)
	}
	unlock()
	if err := i.cache(dir).Clean(); err != nil || len(names(t, dir)) != 1 {
		t.Errorf("afterwards: %v, %v", names(t, dir), err)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
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
			if err := os.WriteFile(filepath.Join(dir, fileName("k")), []byte(`{"token":"x`),
				0o600); err != nil {
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
	token := Token{Value: "v", Expires: time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC),
		Refresh: time.Date(2026, 1, 1, 0, 40, 0, 5, time.UTC)}
	const group = "client.authentication.k8s.io/"
	written := func(version string) string {
		return `{"apiVersion":"` + group + version + `","kind":"ExecCredential",` +
			`"status":{"expirationTimestamp":"2026-01-01T00:40:00Z","token":"v"}}`
	}
	for _, tt := range []struct{ info, want, err string }{
		{"", written("v1"), ""},
		{`{"apiVersion":"` + group + `v1beta1"}`, written("v1beta1"), ""},
		{`{"apiVersion":"` + group + `v1alpha1"}`, "", "only v1 and v1beta1"},
		{`{`, "", "KUBERNETES_EXEC_INFO"},
	} {
		var b bytes.Buffer
		err := WriteExec(&b, token, tt.info)
		if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) ||
			strings.TrimSpace(b.String()) != tt.want {
			t.Errorf("%q: %s, %v", tt.info, b.String(), err)
		}
	}
}
