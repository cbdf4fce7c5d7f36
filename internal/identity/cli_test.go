package identity

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
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

// The first login that is valid counts; without any the error tells of all.
func TestFirst(t *testing.T) {
	o := policy.TokenRequestOptions{Scopes: []string{"s"}}
	ran := ""
	none := prints("", errors.New("no login of the user"), &ran)
	roots := prints(`{"accessToken": "root's", "expires_on": 1}`, nil, &ran)
	if token, err := (First{none, roots}).GetToken(t.Context(), o); err != nil ||
		token.Token != "root's" {
		t.Errorf("%+v, %v", token, err)
	}
	ran = ""
	if _, err := (First{roots, none}).GetToken(t.Context(), o); err != nil ||
		strings.Count(ran, "\n") != 1 {
		t.Errorf("ran %q, %v", ran, err)
	}
	if _, err := (First{none, none}).GetToken(t.Context(), o); err == nil ||
		!strings.Contains(err.Error(), "no login of the user") {
		t.Errorf("the error is %v", err)
	}
}
