package config

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWithoutSecrets(t *testing.T) {
	token, principal := secretDocument(t)
	for _, d := range []document{token, principal, azureDocument(t, `"arc": {}`)} {
		c, _ := parseOK(t, d)
		without := c.WithoutSecrets()
		clear := string(without.Reveal())
		if strings.Contains(clear, testToken) || strings.Contains(clear, testSecret) {
			t.Error(clear)
		}
		if without.Azure.AuthMode() != c.Azure.AuthMode() {
			t.Errorf("the node authenticates by %q, want %q", without.Azure.AuthMode(),
				c.Azure.AuthMode())
		}
		if without.Credentials() != (Credentials{}) {
			t.Errorf("there are credentials left")
		}
		// The original still has its secrets, and they can be put back.
		if again, _ := parseOK(t, d); !cmp.Equal(again.Credentials(), c.Credentials()) {
			t.Error("the original has lost its secrets")
		}
		if diff := cmp.Diff(c, without.WithCredentials(c.Credentials())); diff != "" {
			t.Error(diff)
		}
	}
}

func TestCredentials(t *testing.T) {
	token, principal := secretDocument(t)
	for _, d := range []document{token, principal} {
		c, _ := parseOK(t, d)
		kept := c.Credentials()
		shown, err := json.Marshal(kept)
		if err != nil {
			t.Fatal(err)
		}
		texts := append([]string{string(shown)}, fmt.Sprintf("%v", kept), fmt.Sprintf("%d", &kept))
		for _, text := range texts {
			if strings.Contains(text, "canary") || !strings.Contains(text, redacted) {
				t.Errorf("shown as %s", text)
			}
		}
		clear := kept.Reveal()
		var again Credentials
		if err := json.Unmarshal(clear, &again); err != nil || again != kept {
			t.Errorf("%v: the credentials do not come back", err)
		}
	}
}
