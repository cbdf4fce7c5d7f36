package stories

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/history"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// rejected returns the agent's record of configurations that failed.
func (w *world) rejected() []history.Rejection {
	w.t.Helper()
	var list []history.Rejection
	data, err := os.ReadFile(filepath.Join(w.root, saved.StateDir, "rejected.json"))
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatal(err)
	}
	return list
}

// pointer returns the generation of a pointer.
func (w *world) pointer(name string) string {
	w.t.Helper()
	target, err := os.Readlink(filepath.Join(w.root, saved.StateDir, name))
	if err != nil {
		w.t.Fatal(err)
	}
	return filepath.Base(target)
}

// holds returns the files of the machine that contain a text.
func (w *world) holds(text string) []string {
	w.t.Helper()
	var found []string
	err := filepath.WalkDir(w.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), text) {
			found = append(found, strings.TrimPrefix(path, w.root))
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return found
}

// tokens returns the files with cached tokens.
func (w *world) tokens() []string {
	w.t.Helper()
	found, err := filepath.Glob(filepath.Join(w.root, saved.RunDir, "token-*.json"))
	if err != nil {
		w.t.Fatal(err)
	}
	return found
}

// kubeletGetsToken fails unless kubelet gets a token from the issuer now.
func (w *world) kubeletGetsToken() {
	w.t.Helper()
	if err := w.forgetTokens(); err != nil {
		w.t.Error(err)
	}
	err := w.run(func(ctx context.Context, a *change.Agent) error {
		_, err := inspect.Token(ctx, &a.Env)
		return err
	})
	if err != nil {
		w.t.Errorf("kubelet gets no token: %v", err)
	}
}

// goesOn fails unless the previously applied node is healthy, with no transition and the same
// kubelet running.
func (w *world) goesOn(applied string, since time.Time) {
	w.t.Helper()
	for _, pointer := range []string{"applied", "live"} {
		if is := w.pointer(pointer); is != applied {
			w.t.Errorf("%s is %.12s, want %.12s", pointer, is, applied)
		}
	}
	if report, err := w.drift(false); err != nil || len(report.Changes) > 0 {
		w.t.Errorf("drift: %v %+v", err, report.Changes)
	}
	if w.kubeletSince() != since {
		w.t.Error("kubelet was restarted")
	}
	if _, err := os.Stat(filepath.Join(w.root, saved.StateDir, "transition.json")); err == nil {
		w.t.Error("a transition is left")
	}
}

// secret returns a change to another secret.
func (w *world) secret(secret, credential string) func(map[string]any) {
	return w.azure(func(azure map[string]any) {
		azure["servicePrincipal"].(map[string]any)["clientSecret"] = secret
		azure["kubeletCredential"] = credential
	})
}

func refused(err error) bool {
	return transition.Of(err).Kind == transition.Refused
}

const (
	newSecret   = "canary-of-tomorrow"
	wrongSecret = "canary-of-nobody"
)

// A wrong secret of the same application is refused, with Entra ID's error, while kubelet keeps
// using the one that works. Then the right one is accepted, and the old one erased.
func TestWrongSecret(t *testing.T) {
	t.Parallel()
	for _, credential := range []string{"token", "certificate"} {
		t.Run(credential, func(t *testing.T) {
			t.Parallel()
			w, sim := azureWorld(t)
			w.config = w.configuration(w.secret(canary, credential))
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			applied, since := w.pointer("applied"), w.kubeletSince()

			w.config = w.configuration(w.secret(wrongSecret, credential))
			_, err := w.bootstrap()
			if !refused(err) || !strings.Contains(err.Error(), "AADSTS7000215") ||
				!strings.Contains(err.Error(), "azure.servicePrincipal.clientSecret") {
				t.Errorf("the error is %v; want a refusal with what Entra ID says", err)
			}
			w.goesOn(applied, since)
			w.kubeletGetsToken()
			if list := w.rejected(); len(list) != 1 || !strings.Contains(list[0].Reason, "AADSTS7000215") {
				t.Errorf("rejected: %+v", list)
			}
			if found := w.holds(wrongSecret); len(found) > 0 {
				t.Errorf("the refused secret is in %v", found)
			}

			sim.AddApplication(azuresim.Application{ClientID: clientID, ObjectID: objectID,
				Secrets: []azuresim.Secret{{Value: canary}, {Value: newSecret}}})
			w.config = w.configuration(w.secret(newSecret, credential))
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			w.onlySecret(sim, newSecret, canary, wrongSecret)
			if now := w.pointer("previous"); now != applied {
				t.Errorf("previous is %.12s, want %.12s", now, applied)
			}
		})
	}
}

// expiredSecret joins a machine with a pod, whose secret then expires, while others are valid.
func expiredSecret(t *testing.T, others ...azuresim.Secret) (*world, *azuresim.Sim) {
	t.Helper()
	w, sim := azureWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.cluster.run("web")
	expired := azuresim.Secret{Value: canary, Expires: time.Now().Add(-time.Hour)}
	sim.AddApplication(azuresim.Application{ClientID: clientID, ObjectID: objectID,
		Secrets: append(others, expired)})
	return w, sim
}

// A new secret drains the node that it changes if the old one has expired.
func TestExpiredSecretAndAnotherMinorVersion(t *testing.T) {
	t.Parallel()
	w, sim := expiredSecret(t, azuresim.Secret{Value: newSecret})
	w.config = w.configuration(w.secret(newSecret, "token"), w.kubernetes("1.35.4", "1.35.4"))
	if err := w.forgetTokens(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.bootstrap(); err != nil || len(w.cluster.evicted) != 1 || w.cordoned() {
		t.Errorf("%v; evicted are %v, cordoned %t", err, w.cluster.evicted, w.cordoned())
	}
	w.onlySecret(sim, newSecret, canary)
}

// A bootstrap token, which cannot drain, replaces a secret that has expired without a drain.
func TestExpiredSecretAndABootstrapToken(t *testing.T) {
	t.Parallel()
	w, _ := expiredSecret(t)
	w.upgrade()
	if err := w.forgetTokens(); err != nil {
		t.Fatal(err)
	}
	_, err := w.bootstrap()
	if err != nil || w.kubeletVersion() != "v1.35.4" || len(w.cluster.evicted) > 0 {
		t.Errorf("%v; kubelet %s, evicted %v", err, w.kubeletVersion(), w.cluster.evicted)
	}
}

// The tokens of an identity are erased once kubelet has a certificate instead.
func TestTokensBeforeABootstrapToken(t *testing.T) {
	t.Parallel()
	w, _ := azureWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.kubeletGetsToken()
	w.config = w.configuration()
	if _, err := w.bootstrap(); err != nil || len(w.tokens()) > 0 {
		t.Errorf("%v; kept are %v", err, w.tokens())
	}
}

// A new secret that Entra ID's servers do not all know yet is not refused.
func TestSecretThatPropagates(t *testing.T) {
	t.Parallel()
	w, sim := azureWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.config = w.configuration(w.secret(newSecret, "token"))
	known := time.AfterFunc(time.Second, func() {
		sim.AddApplication(azuresim.Application{ClientID: clientID, ObjectID: objectID,
			Secrets: []azuresim.Secret{{Value: newSecret}}})
	})
	defer known.Stop()
	if _, err := w.bootstrap(); err != nil || len(w.rejected()) > 0 {
		t.Errorf("%v, rejected %+v", err, w.rejected())
	}
	w.onlySecret(sim, newSecret, canary)
}

// onlySecret fails unless kubelet gets tokens with one secret, and the others are nowhere on the
// machine.
func (w *world) onlySecret(sim *azuresim.Sim, secret string, gone ...string) {
	w.t.Helper()
	if found := w.tokens(); len(found) > 1 {
		w.t.Errorf("tokens of several secrets are kept: %v", found)
	}
	sim.AddApplication(azuresim.Application{ClientID: clientID, ObjectID: objectID,
		Secrets: []azuresim.Secret{{Value: secret}}})
	w.kubeletGetsToken()
	for _, old := range gone {
		if found := w.holds(old); len(found) > 0 {
			w.t.Errorf("%s is in %v", old, found)
		}
		if strings.Contains(w.log.String(), old) {
			w.t.Errorf("%s is in the log", old)
		}
	}
}

// The secret of a rejected configuration is not stored for the applied one, which follows its
// cluster.
func TestSecretOfARejectedConfiguration(t *testing.T) {
	t.Parallel()
	w, sim := azureWorld(t)
	w.config.Agent.ReadyTimeout = "20s" // the gate of the way back waits for it
	w.knowing()
	sim.AddApplication(azuresim.Application{ClientID: clientID, ObjectID: objectID,
		Secrets: []azuresim.Secret{{Value: canary}, {Value: newSecret}}})
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	start := w.systemd.OnStart
	w.refuseChangedKubelet()
	w.config = w.configuration(w.secret(newSecret, "token"), nodeSetting("maxPods", 42))
	if err := w.daemonReconciles(); !rolledBack(err) {
		t.Fatal(err)
	}
	w.systemd.OnStart = start
	former := w.cluster.pki()
	w.cluster.newCA("api-1.example")
	w.publish(sim)
	err := w.run(func(ctx context.Context, a *change.Agent) error {
		return leaves(ctx, a, transition.Transition{Kind: transition.Rollback, Phase: transition.Gate})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.daemonReconciles(); err == nil || !strings.Contains(err.Error(), "was rejected") {
		t.Errorf("the rejected configuration counts as applied: %v", err)
	}
	w.follows(former)
	if found := w.holds(newSecret); len(found) > 0 {
		t.Errorf("the secret is in %v", found)
	}
}

// An issuer that is down does not reject the new secret: the next run tries it again.
func TestIssuerDown(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]azuresim.Fault{
		"ill":  {Status: 503, Match: "token"},
		"gone": {Outage: true},
		"busy": {Status: 429, Match: "token"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, sim := azureWorld(t)
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			applied, since := w.pointer("applied"), w.kubeletSince()
			sim.AddApplication(azuresim.Application{ClientID: clientID, ObjectID: objectID,
				Secrets: []azuresim.Secret{{Value: newSecret}}})
			sim.Adjust(func(k *azuresim.Knobs) {
				k.Faults = map[azuresim.Service]azuresim.Fault{azuresim.Entra: fault}
			})
			w.config = w.configuration(w.secret(newSecret, "token"))
			_, err := w.bootstrap()
			if err == nil || refused(err) {
				t.Errorf("the error is %v; want one that is no refusal", err)
			}
			w.goesOn(applied, since)
			if list := w.rejected(); len(list) > 0 {
				t.Errorf("rejected: %+v", list)
			}
			sim.Adjust(func(k *azuresim.Knobs) { k.Faults = nil })
			if _, err := w.bootstrap(); err != nil {
				t.Errorf("with the issuer back: %v", err)
			}
			w.onlySecret(sim, newSecret, canary)
		})
	}
}

// The other application.
const (
	anotherClient = "bbbbbbbb-0000-0000-0000-000000000001"
	anotherObject = "bbbbbbbb-0000-0000-0000-0000000000f1"
)

// anotherIdentity returns a change to another application, which Entra ID has.
func (w *world) anotherIdentity(sim *azuresim.Sim) func(map[string]any) {
	sim.AddApplication(azuresim.Application{ClientID: anotherClient, ObjectID: anotherObject,
		Secrets: []azuresim.Secret{{Value: newSecret}}})
	for _, a := range sim.Assignments() {
		if a.PrincipalID == objectID {
			sim.Assign(azuresim.Assignment{Scope: a.Scope, RoleID: a.RoleID, PrincipalID: anotherObject})
		}
	}
	return w.azure(func(azure map[string]any) {
		azure["servicePrincipal"] = map[string]any{"clientId": anotherClient, "clientSecret": newSecret}
	})
}

// The API server decides about a token: 401 refuses the identity, 403 has recognized it.
func TestIdentityOfAnotherTenant(t *testing.T) {
	w, sim := azureWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	applied, since := w.pointer("applied"), w.kubeletSince()
	w.config = w.configuration(w.anotherIdentity(sim))
	w.cluster.set(func() { w.cluster.strangers = []string{anotherObject} })
	_, err := w.bootstrap()
	if !refused(err) || !strings.Contains(err.Error(), "401") {
		t.Errorf("the error is %v; want the API server's refusal", err)
	}
	w.goesOn(applied, since)
	w.kubeletGetsToken()
	if list := w.rejected(); len(list) != 1 || !strings.Contains(list[0].Reason, "401") {
		t.Errorf("rejected: %+v", list)
	}

	w.cluster.set(func() { w.cluster.strangers, w.cluster.silent = nil, true })
	if _, err := w.bootstrap(); err != nil {
		t.Errorf("an identity that may not ask who it is: %v", err)
	}
	if list := w.rejected(); len(list) > 0 {
		t.Errorf("still rejected: %+v", list)
	}
}

// A certificate that Entra ID does not accept any more is refused like a wrong secret.
func TestExpiredCertificate(t *testing.T) {
	w, sim := azureWorld(t)
	good, goodFile := w.applicationCertificate("good", time.Hour)
	old, oldFile := w.applicationCertificate("old", -time.Hour)
	sim.AddApplication(azuresim.Application{ClientID: clientID, ObjectID: objectID,
		Certificates: []string{good, old}, Secrets: []azuresim.Secret{{Value: canary}}})
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	applied, since := w.pointer("applied"), w.kubeletSince()
	w.config = w.configuration(w.certificate(oldFile))
	_, err := w.bootstrap()
	if !refused(err) || !strings.Contains(err.Error(), "AADSTS700027") ||
		!strings.Contains(err.Error(), "expired") {
		t.Errorf("the error is %v; want a refusal that speaks of the certificate", err)
	}
	w.goesOn(applied, since)
	w.kubeletGetsToken()
	w.config = w.configuration(w.certificate(goodFile))
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	sim.AddApplication(azuresim.Application{ClientID: clientID, ObjectID: objectID,
		Certificates: []string{good}})
	w.kubeletGetsToken()
	if found := w.holds(canary); len(found) > 0 {
		t.Errorf("the previous secret is in %v", found)
	}
}

// certificate returns a change to a certificate instead of a secret.
func (w *world) certificate(file string) func(map[string]any) {
	return w.azure(func(azure map[string]any) {
		azure["servicePrincipal"] = map[string]any{"clientId": clientID, "certificateFile": file}
	})
}

// applicationCertificate creates a certificate with a lifetime, and a file with it and its key.
func (w *world) applicationCertificate(name string, lifetime time.Duration) (cert, file string) {
	w.t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		w.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(lifetime),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		w.t.Fatal(err)
	}
	cert = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	private := pem.EncodeToMemory(&pem.Block{
		Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key),
	})
	file = filepath.Join(w.t.TempDir(), name+".pem")
	if err := os.WriteFile(file, append([]byte(cert), private...), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return cert, file
}

// forgetTokens removes cached tokens, so that the next one needs the secret.
func (w *world) forgetTokens() error {
	kept, err := filepath.Glob(filepath.Join(w.root, saved.RunDir, "token*.json"))
	for _, path := range kept {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}
