package service

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/rp/cluster"
	"github.com/Azure/AKSFlexNode/internal/rp/front"
	"github.com/Azure/AKSFlexNode/internal/rp/rptest"
	"github.com/Azure/AKSFlexNode/internal/rp/rptest/kubetest"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

const (
	azGroup   = "/subscriptions/" + subscription + "/resourceGroups/my-rg"
	azCluster = azGroup + "/providers/Microsoft.ContainerService/managedClusters/my-cluster"
	azOwner   = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635" // the role
)

var (
	azOperator = azApplication("1", "operator", azuresim.Secret{Value: "correct-horse"})
	azStranger = azApplication("2", "stranger", azuresim.Secret{Value: "battery-staple"})
	azDeployer = azApplication("3", "deployer", azuresim.Secret{Value: "pony-express"})
	azProvider = azApplication("4", "provider")
)

func azApplication(id, name string, secrets ...azuresim.Secret) azuresim.Application {
	return azuresim.Application{ClientID: "aaaaaaaa-0000-0000-0000-00000000000" + id, Name: name,
		ObjectID: "aaaaaaaa-0000-0000-0000-0000000000f" + id, Secrets: secrets}
}

// azWorld is the az CLI with the extension, a simulated Azure, and the provider, in real time.
type azWorld struct {
	t       *testing.T
	dir     string
	cluster *fakeCluster
	sim     *azuresim.Sim
	arm     *httptest.Server // Azure: Entra ID and Resource Manager
	direct  *httptest.Server // the provider itself
	who     string           // the user whose login az uses
	store   *store.Store
}

// newAzWorld starts all of it and logs three callers in; it skips the test without az.
func newAzWorld(t *testing.T) *azWorld {
	t.Helper()
	if _, err := exec.LookPath("az"); err != nil {
		t.Skip("there is no az here (Debian: apt-get install azure-cli)")
	}
	w := &azWorld{t: t, dir: t.TempDir(), cluster: &fakeCluster{kubetest.New("factory")},
		sim: &azuresim.Sim{}}
	w.sim.Load(azuresim.World{
		Subscriptions:  []azuresim.Subscription{{ID: subscription, Name: "Edge"}},
		ResourceGroups: []string{azGroup},
		Applications:   []azuresim.Application{azOperator, azStranger, azDeployer, azProvider},
		Roles: []azuresim.Role{{ID: "deployer", Actions: []string{"Microsoft.Resources/deployments/*",
			"Microsoft.ContainerService/managedClusters/flexNodeConfig/*"}}},
		Assignments: []azuresim.Assignment{
			{Scope: "/subscriptions/" + subscription, RoleID: azOwner, PrincipalID: azOperator.ObjectID},
			{Scope: azGroup, RoleID: "deployer", PrincipalID: azDeployer.ObjectID},
			{Scope: "/subscriptions/" + subscription + "/resourceGroups/other", RoleID: azOwner,
				PrincipalID: azStranger.ObjectID},
		},
	})
	t.Cleanup(w.sim.Close)
	w.arm = httptest.NewTLSServer(w.sim)
	t.Cleanup(w.arm.Close)
	w.provide()
	w.install()
	w.who = "initial" // the settings with which each caller begins
	w.must(`az cloud register -n sim --endpoint-resource-manager $ARM \
  --endpoint-management $ARM/ --endpoint-active-directory $ARM/adfs \
  --endpoint-active-directory-resource-id $ARM/ \
  --endpoint-active-directory-graph-resource-id $ARM/
az cloud set -n sim
az config set defaults.flexnode_audience=api://` + azProvider.ClientID + ` --only-show-errors`)
	for _, who := range []azuresim.Application{azStranger, azDeployer, azOperator} {
		must(0, os.CopyFS(filepath.Join(w.dir, who.Name), os.DirFS(filepath.Join(w.dir, "initial"))))
		w.who = who.Name
		w.must(`az login --service-principal -u ` + who.ClientID + ` -p ` + who.Secrets[0].Value +
			` --tenant ` + azuresim.DefaultTenant + ` -o none`)
	}
	return w
}

// provide starts the provider: behind Resource Manager, and for direct callers.
func (w *azWorld) provide() {
	t := w.t
	direct := httptest.NewUnstartedServer(nil)
	public := "https://" + direct.Listener.Addr().String()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.arm.Certificate().Raw})
	settings := Settings{
		PublicURL: public, OtherURLs: []string{public}, Installation: "here",
		TenantID: azuresim.DefaultTenant, KeysFile: keysFile(t, w.dir),
		CAFile: write(t, w.dir, "ca.pem", string(ca)),
		Authentication: Authentication{Audiences: []string{"api://" + azProvider.ClientID},
			Issuers: []front.Issuer{{TenantID: azuresim.DefaultTenant,
				URL:     w.arm.URL + "/" + azuresim.DefaultTenant + "/",
				KeysURL: w.arm.URL + "/" + azuresim.DefaultTenant + "/discovery/v2.0/keys"}}},
		RoleAssignments: front.Assignments{{PrincipalID: azOperator.ObjectID, Scope: "/",
			Actions: []string{"*"}}}, NodeDefaults: oldKubernetes(),
	}
	s := newService(settings, All, storetest.NewMemory())
	s.log = slog.New(slog.NewTextHandler(kubetest.Log{T: t}, nil))
	ctx, cancel := context.WithCancel(context.Background())
	s.begin(ctx)
	s.clusters.Source, s.clusters.Dial = w.cluster, w.dial
	stop := s.work(ctx)
	t.Cleanup(func() { _ = stop(ctx); cancel() })
	w.store = s.store
	a := settings.Authentication
	direct.Config.Handler = s.public(s.api.Direct(must(front.NewEntra(ctx, a.Issuers, a.Audiences,
		s.client, time.Now))))
	direct.StartTLS()
	t.Cleanup(direct.Close)
	w.direct = direct
	behind := s.api.BehindARM(authenticate(trusted))
	manager := httptest.NewServer(behind)
	t.Cleanup(manager.Close)
	w.sim.Provider = &azuresim.Provider{URLs: []string{manager.URL}, Client: manager.Client()}
	for _, put := range []struct{ path, body string }{ // a cluster needs its subscription
		{"/subscriptions/" + subscription + "?api-version=2.0", `{"state":"Registered",
			"properties":{"tenantId":"` + azuresim.DefaultTenant + `"}}`},
		{azCluster + versionQuery, `{"location":"westeurope","properties":{}}`},
	} {
		recorder := httptest.NewRecorder()
		behind.ServeHTTP(recorder, rptest.Request(http.MethodPut, put.path, put.body))
		if recorder.Code >= 300 {
			t.Fatalf("PUT %s: %d %s", put.path, recorder.Code, recorder.Body)
		}
	}
}

// dial reaches the cluster, which has the version that document 004's commands assume.
func (w *azWorld) dial(a cluster.Access) (*cluster.Connection, error) {
	c, err := w.cluster.dial(a)
	reach := c.Version
	c.Version = func(ctx context.Context) (string, error) {
		_, err := reach(ctx)
		return "v1.34.4", err
	}
	return c, err
}

// oldKubernetes allows, as the operator, the version of Kubernetes in document 004.
func oldKubernetes() map[string]any {
	digest := map[string]any{"sha256": strings.Repeat("a", 64)}
	return map[string]any{"artifacts": map[string]any{"overrides": map[string]any{
		"kubelet": digest, "kubectl": digest, "kubeadm": digest}}}
}

// install builds the wheel and unpacks it into az's directory.
func (w *azWorld) install() {
	w.t.Helper()
	out, err := exec.Command("go", "run", "-C", "../../../packaging", "./az",
		"-out", w.dir, "-version", "v0.1.0").CombinedOutput()
	if err != nil {
		w.t.Fatalf("cannot make the extension: %v: %s", err, out)
	}
	archive := must(zip.OpenReader(strings.TrimSpace(string(out))))
	defer archive.Close()
	must(0, os.CopyFS(filepath.Join(w.dir, "extensions/aks-flex-node"), archive))
}

// run runs a shell with az, and returns both outputs and the exit code.
func (w *azWorld) run(script string) (out, errors string, code int) {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), "bash", "-c", "set -eo pipefail\n"+script)
	cmd.Dir = w.dir
	cmd.Env = []string{"PATH=" + w.dir + ":" + os.Getenv("PATH"), "HOME=" + w.dir,
		"AZURE_CONFIG_DIR=" + filepath.Join(w.dir, w.who),
		"AZURE_EXTENSION_DIR=" + filepath.Join(w.dir, "extensions"),
		"AZURE_CORE_COLLECT_TELEMETRY=0", "AZURE_EXTENSION_USE_DYNAMIC_INSTALL=no",
		"AZURE_CORE_SURVEY_MESSAGE=no", "PYTHONDONTWRITEBYTECODE=1",
		"REQUESTS_CA_BUNDLE=" + filepath.Join(w.dir, "ca.pem"), "ARM=" + w.arm.URL,
		"DIRECT=" + w.direct.URL, "G=-g my-rg -c my-cluster"}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		w.t.Fatal(err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// must returns the output of a script that succeeds.
func (w *azWorld) must(script string) string {
	w.t.Helper()
	out, errors, code := w.run(script)
	if code != 0 || strings.Contains(errors, "Unable to load extension") {
		w.t.Fatalf("exit code %d\n%s\n%s%s", code, script, out, errors)
	}
	return strings.TrimSpace(out)
}

// fetch reads a configuration URL, and checks the status.
func (w *azWorld) fetch(url string, want int) string {
	w.t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true}}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	response := must(client.Get(url))
	defer response.Body.Close()
	equal(w.t, url, response.StatusCode, want)
	return string(must(io.ReadAll(response.Body)))
}
