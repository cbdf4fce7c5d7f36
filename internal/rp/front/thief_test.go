package front

import (
	"encoding/json"
	"strings"
	"testing"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// Who reads the rows of a node, in the store or in a backup, has no secret by which to be the node:
// they are sealed with the keys, or stored nowhere.
func TestRowsHaveNoSecret(t *testing.T) {
	w := newEdge(t)
	const clientSecret = "correct-horse-battery"
	w.must(201, "PUT", nodeURL("n"), `{"properties":{"azureAuth":{"method":"servicePrincipal",
		"servicePrincipal":{"clientId":"`+clientA+`","clientSecret":"`+clientSecret+`"}}}}`)
	w.caughtUp()
	_, text := w.must(200, "POST", nodeURL("n", "/regenerateToken"), "")
	url := decoded[api.ConfigURL](t, text).ConfigURL
	_, text = w.must(200, "GET", strings.TrimPrefix(url, publicURL), "")
	bundle := decoded[api.Bundle](t, text)
	if !strings.Contains(text, clientSecret) || bundle.EnrolmentSecret == "" {
		t.Fatalf("the bundle has no secrets: %s", text)
	}
	m := w.machineOf("n")
	m.registers(t, 204, bundle.EnrolmentSecret)
	credentials, _, err := w.api.Store.Credentials.List(t.Context(), "")
	if err != nil || len(credentials) == 0 {
		t.Fatalf("no credential: %v", err)
	}
	secrets, _, err := w.api.Store.Secrets.List(t.Context(), "")
	if err != nil || len(secrets) == 0 {
		t.Fatalf("no sealed secret: %v", err)
	}
	rows := string(must(json.Marshal([]any{w.storedNode("n"), credentials, secrets})))
	_, mac, _ := strings.Cut(bundle.EnrolmentSecret, ".")
	_, signature, _ := strings.Cut(url, "sig=")
	for what, secret := range map[string]string{
		"the client secret": clientSecret, "the enrolment secret": mac, "the URL": signature,
		"the machine's key": strings.Split(string(must(m.key.PEM())), "\n")[1],
	} {
		if secret == "" || strings.Contains(rows, secret) {
			t.Errorf("%s (%q) is in the rows", what, secret)
		}
	}
	if !strings.Contains(rows, m.key.Thumbprint()) {
		t.Error("the rows are not those of the node")
	}
}
