package identity

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/config"
)

// A machine whose identity may pull gets from the registry what opens it; another one gets the
// reason, which is kept until the registry gives a token.
func TestImages(t *testing.T) {
	const registry = groupID + "/providers/Microsoft.ContainerRegistry/registries/images"
	sim := azure(t)
	sim.Load(azuresim.World{
		Subscriptions: []azuresim.Subscription{{ID: subscription}}, ResourceGroups: []string{groupID},
		Applications: []azuresim.Application{{ClientID: clientID, ObjectID: objectID,
			Secrets: []azuresim.Secret{{Value: canary}}}},
		Registry: registry,
	})
	sim.Images = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("manifest"))
	})
	host := strings.TrimPrefix(server.URL, "https://")
	images := Images{Dir: t.TempDir(), Azure: principal()}
	ask := func(image string) (string, error) {
		var out strings.Builder
		err := images.Answer(t.Context(), strings.NewReader(`{"kind":"CredentialProviderRequest",`+
			`"apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"`+image+`"}`), &out)
		return out.String(), err
	}

	out, err := ask(host + "/app:1")
	if err == nil || out != "" || !strings.Contains(err.Error(), "401") ||
		!strings.Contains(err.Error(), "--role AcrPull --assignee "+objectID) {
		t.Fatalf("without the right: %q, %v", out, err)
	}
	if found := Failures(images.Dir, time.Now()); len(found) != 1 || found[0] != err.Error() {
		t.Errorf("kept is %q", found)
	}
	if found := Failures(images.Dir, time.Now().Add(time.Hour)); found != nil {
		t.Errorf("an hour later: %q", found)
	}

	sim.Assign(azuresim.Assignment{Scope: groupID, RoleID: azuresim.RoleAcrPull,
		PrincipalID: objectID})
	if out, err = ask(host + "/app:1"); err != nil {
		t.Fatal(err)
	}
	if found := Failures(images.Dir, time.Now()); found != nil {
		t.Errorf("kept is %q", found)
	}
	if got := pull(t, host, out); got != "manifest" {
		t.Errorf("pulled %q", got)
	}

	old, ago := images.Dir+"/registry-old.example", time.Now().Add(-time.Hour)
	if err := errors.Join(os.WriteFile(old, nil, 0o600), os.Chtimes(old, ago, ago)); err != nil {
		t.Fatal(err)
	}
	for image, want := range map[string]string{
		"../../etc:1":     "only images of a registry",
		"127.0.0.1:1/a:1": "cannot connect",
		host + "x/a:1":    "only images of a registry",
	} {
		if _, err := ask(image); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", image, err)
		}
	}
	if entries, _ := os.ReadDir(images.Dir); len(entries) != 1 {
		t.Errorf("kept for the registry that does not answer, and no other: %v", entries)
	}
	images.Azure = config.Azure{BootstrapToken: &config.BootstrapToken{}}
	if _, err := ask(host + "/app:1"); err == nil {
		t.Error("a token without an identity")
	}
}

// pull asks for a manifest as container runtimes do, with the credential of an answer.
func pull(t *testing.T, host, answer string) string {
	t.Helper()
	var credential struct {
		CacheKeyType, CacheDuration string
		Auth                        map[string]struct{ Username, Password string }
	}
	if err := json.Unmarshal([]byte(answer), &credential); err != nil {
		t.Fatal(err)
	}
	if d, err := time.ParseDuration(credential.CacheDuration); err != nil || d < time.Minute ||
		credential.CacheKeyType != "Registry" {
		t.Errorf("cached as %+v", credential)
	}
	get := func(path string, authorize func(*http.Request)) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		authorize(r)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		return response
	}
	const manifest = "/v2/app/manifests/1"
	challenge := get(manifest, func(*http.Request) {})
	if challenge.StatusCode != http.StatusUnauthorized ||
		!strings.Contains(challenge.Header.Get("Www-Authenticate"), "/oauth2/token") {
		t.Fatalf("without a token: %s, %v", challenge.Status, challenge.Header)
	}
	var access struct {
		Token string `json:"access_token"`
	}
	mine := credential.Auth[host]
	granted := get("/oauth2/token?scope=repository:app:pull&service="+host,
		func(r *http.Request) { r.SetBasicAuth(mine.Username, mine.Password) })
	if err := json.NewDecoder(granted.Body).Decode(&access); err != nil || access.Token == "" {
		t.Fatalf("no access token: %s, %v", granted.Status, err)
	}
	text := make([]byte, 64)
	n, _ := get(manifest, func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+access.Token)
	}).Body.Read(text)
	return string(text[:n])
}
