package identity

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/Azure/AKSFlexNode/internal/config"
)

// prints is a login whose CLI prints a text, or fails.
func prints(text string, err error, ran *string) UserCLI {
	run := func(_ context.Context, _ time.Duration, argv ...string) ([]byte, error) {
		*ran += strings.Join(argv, " ") + "\n"
		return []byte(text), err
	}
	return UserCLI{Tenant: "t", Run: run}
}

func TestUserCLI(t *testing.T) {
	o := policy.TokenRequestOptions{Scopes: []string{"https://management.example/.default"}}
	at := time.Unix(1795276800, 0)
	local := `{"accessToken": "a", "expiresOn": "` + at.Format("2006-01-02 15:04:05.000000") + `"}`
	for name, text := range map[string]string{
		"new": `{"accessToken": "a", "expires_on": 1795276800, "expiresOn": "nonsense"}`, "old": local,
	} {
		ran := ""
		token, err := prints(text, nil, &ran).GetToken(t.Context(), o)
		if err != nil || token.Token != "a" || !token.ExpiresOn.Equal(at) {
			t.Errorf("%s: %+v, %v", name, token, err)
		}
		const want = "az account get-access-token --output json --resource https://management.example " +
			"--tenant t\n"
		if ran != want {
			t.Errorf("%s: ran %q", name, ran)
		}
	}
	for _, text := range []string{"", "{}", `{"accessToken": "a", "expiresOn": "x"}`} {
		ran := ""
		if _, err := prints(text, nil, &ran).GetToken(t.Context(), o); err == nil {
			t.Errorf("%q is a token", text)
		}
	}
}

// The first login that is valid counts; without any the error has both reasons.
func TestFirstLogin(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	const users = `{"accessToken": "user's", "expires_on": 1795276800}`
	const roots = `{"accessToken": "root's", "expiresOn": "2026-11-21 00:00:00.000000"}`
	for name, tt := range map[string]struct{ user, root, want, says string }{
		"the user's": {users, roots, "user's", ""},
		"root's":     {"", roots, "root's", ""},
		"none":       {"", "", "", "no login of root"},
	} {
		script := "#!/bin/sh\ncat <<'END'\n" + tt.root + "\nEND\n"
		if tt.root == "" {
			script = "#!/bin/sh\necho no login of root >&2\nexit 1\n"
		}
		if err := os.WriteFile(filepath.Join(dir, "az"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		ran := ""
		l := Login{User: prints(tt.user, nil, &ran).Run}
		if tt.user == "" {
			l.User = prints("", errors.New("no login of the user"), &ran).Run
		}
		credential, err := l.Manager(config.Azure{TenantID: "t", Arc: &config.Arc{}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		scopes := []string{"https://management.example/.default"}
		token, err := credential.GetToken(t.Context(), policy.TokenRequestOptions{Scopes: scopes})
		if token.Token != tt.want || (err == nil) != (tt.says == "") {
			t.Errorf("%s: %q, %v", name, token.Token, err)
		}
		if err != nil && (!strings.Contains(err.Error(), tt.says) ||
			!strings.Contains(err.Error(), "no login of the user")) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}
