package front

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/api/flexnode/sealed"
	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// refresh is the configuration that the node n gets for itself, as its agent takes it, and its
// version.
func (w *world) refresh(t *testing.T, headers ...string) (config.Config, string) {
	t.Helper()
	key := must(sealed.NewKey())
	body := must(json.Marshal(api.Refresh{PublicKey: key.Public()}))
	_, text := w.must(200, "POST", nodeURL("n", "/refreshCredentials"), string(body), headers...)
	answer := decoded[api.Refreshed](w.t, text)
	n := w.storedNode("n")
	opened := must(key.Open(sealed.About{ID: cluster + "/flexNodeConfig/N", UID: n.UID},
		answer.EncapsulatedKey, answer.Ciphertext))
	b := decoded[api.Bundle](t, string(opened))
	if b.Resource.UID != n.UID || b.Resource.ConfigVersion != answer.ConfigVersion ||
		b.Resource.Epoch != 1 {
		t.Errorf("the bundle is of %+v", b.Resource)
	}
	c, _, err := config.Parse(opened, config.Host{HostName: "x", Arch: "amd64"})
	if err != nil {
		t.Fatalf("the agent does not take the bundle: %v\n%s", err, opened)
	}
	if (c.Azure.BootstrapToken != nil) != (answer.Expires != nil) {
		t.Errorf("expires is %v", answer.Expires)
	}
	return c, answer.ConfigVersion
}

// Nothing of the answer can be read but with the key that was sent; without a usable key the
// provider sends no answer.
func TestRefreshIsSealed(t *testing.T) {
	w, i, ops := guarded(t)
	w.must(201, "PUT", nodeURL("n"), nodeOf(clientA, "hush-hush"), ops)
	w.caughtUp()
	a := i.app(t, w, clientA)
	post := func(status int, body string) string {
		t.Helper()
		_, text := w.must(status, "POST", nodeURL("n", "/refreshCredentials"), body, a)
		return text
	}
	encoded := base64.StdEncoding.EncodeToString
	good := encoded(must(sealed.NewKey()).Public())
	post(200, `{"publicKey":"`+good+`","other":true}`) // of a newer agent
	text := post(200, `{"publicKey":"`+good+`"}`)
	if strings.Contains(text, "hush") || strings.Contains(text, "config\"") {
		t.Errorf("%s", text)
	}
	for body, want := range map[string]string{
		"":                                  "InvalidRequestContent",
		"{}":                                "InvalidParameter",
		`{"publicKey":""}`:                  "InvalidParameter",
		`{"publicKey":"?"}`:                 "InvalidRequestContent",
		`{"publicKey":7}`:                   "InvalidRequestContent",
		`{"publicKey":"` + good[:40] + `"}`: "InvalidParameter",
		`{"publicKey":"` + encoded(make([]byte, 32)) + `"}`:               "InvalidParameter",
		`{"publicKey":"` + encoded(append(make([]byte, 31), 0x80)) + `"}`: "InvalidParameter",
	} {
		if got := code(post(400, body)); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}

// The secret that enrols an Arc machine is in the configuration that a machine joins with, and
// nowhere else: the machine itself gets no more of it, and a previous identity does, which has to
// be enrolled.
func TestRefreshAfterEnrolment(t *testing.T) {
	w, i, ops := guarded(t)
	w.must(201, "PUT", nodeURL("n"), nodeOf(clientB, "of the node"), ops)
	_, text := w.must(200, "PUT", nodeURL("n")+"&configUrl=true", `{"properties":{
		"continuousMonitoring":true,"kubernetesAuth":{"useAzureAuth":true},
		"azureAuth":{"method":"arc","arc":{"onboarding":{"clientId":"`+clientA+`",
			"clientSecret":"hush-hush"}}}}}`, ops)
	shown := shownNode(t, text)
	onboarding := shown.Properties.AzureAuth.Arc.Onboarding
	if strings.Contains(text, "hush") || onboarding == nil || onboarding.ClientID != clientA {
		t.Errorf("it shows %s", text)
	}
	_, bundle := w.must(200, "GET", path(shown.Properties.ConfigURL), "")
	if !strings.Contains(bundle, "hush-hush") {
		t.Errorf("the secret is not in %s", bundle)
	}
	w.caughtUp()
	c, _ := w.refresh(t, i.app(t, w, clientB))
	if c.Credentials().ClientSecret != "hush-hush" {
		t.Error("a former identity cannot enrol the machine")
	}
	arc := i.claims(w.clock.Now(), "arc-app")
	arc["xms_mirid"] = strings.TrimSuffix(cluster, "/providers/"+flexnode.ClusterType+"/Factory") +
		"/providers/Microsoft.HybridCompute/machines/N"
	c, _ = w.refresh(t, "Authorization: Bearer "+i.sign(t, "one", arc))
	if sp := c.Azure.ServicePrincipal; sp == nil || sp.ClientID != clientA || sp.ClientSecret != "" {
		t.Errorf("the machine itself gets %+v", sp)
	}
	w.must(403, "GET", nodeURL("n"), "", i.app(t, w, clientA)) // it is not the node
}

// The present identity revokes what others may have; a former one cannot, since it is one of them.
func TestRefreshRevokesPrevious(t *testing.T) {
	w, i, ops := guarded(t)
	w.must(201, "PUT", nodeURL("n"), nodeOf(clientA, "first"), ops)
	_, text := w.must(200, "PUT", nodeURL("n")+"&configUrl=true", nodeOf(clientB, "second"), ops)
	url := path(shownNode(t, text).Properties.ConfigURL)
	w.must(200, "GET", url, "")
	w.caughtUp()
	former, present := i.app(t, w, clientA), i.app(t, w, clientB)
	body := `{"revokePrevious":true,"publicKey":"` +
		base64.StdEncoding.EncodeToString(must(sealed.NewKey()).Public()) + `"}`
	_, text = w.must(403, "POST", nodeURL("n", "/refreshCredentials"), body, former)
	if code(text) != "FormerIdentity" {
		t.Errorf("%s", text)
	}
	w.must(200, "GET", nodeURL("n"), "", former)
	w.must(200, "GET", url, "")
	w.must(200, "POST", nodeURL("n", "/refreshCredentials"), body, present)
	w.caughtUp()
	w.must(403, "GET", nodeURL("n"), "", former)
	w.must(403, "GET", url, "")
	w.must(200, "GET", nodeURL("n"), "", present)
}

// A machine that shares its identity gets no bootstrap token in the name of another node that runs.
func TestRefreshOfANodeThatRuns(t *testing.T) {
	w, i, ops := guarded(t)
	a := i.app(t, w, clientA)
	w.must(201, "PUT", nodeURL("n"), nodeOf(clientA, "hush"), ops)
	w.change(func(v *store.View) error {
		row, err := w.api.Store.Clusters.In(v, clusterKey)
		row.Value.Properties.Reachable = true
		return errors.Join(err, w.api.Store.Clusters.Put(v, clusterKey, row.Value),
			w.api.Store.Status.Put(v, clusterKey+"/n", flexnode.Status{
				Ready: &api.Condition{Type: flexnode.Ready, Status: "True"}}))
	})
	w.caughtUp()
	w.refresh(t, a) // no other node shares it
	w.must(201, "PUT", nodeURL("other"), nodeOf(clientA, "hush"), ops)
	w.caughtUp()
	ask := func(status int, joined string) string {
		t.Helper()
		_, text := w.must(status, "POST", nodeURL("n", "/refreshCredentials"), `{"publicKey":"`+
			base64.StdEncoding.EncodeToString(must(sealed.NewKey()).Public())+`"`+joined+`}`, a)
		return text
	}
	if text := ask(503, ""); code(text) != "CredentialNotReady" {
		t.Error(text)
	}
	ask(200, `,"joined":true`)
	w.change(func(v *store.View) error {
		return w.api.Store.Status.Put(v, clusterKey+"/n", flexnode.Status{
			Ready: &api.Condition{Type: flexnode.Ready, Status: "Unknown"}})
	})
	w.caughtUp()
	ask(200, "")
}
