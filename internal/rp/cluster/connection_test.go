package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v6"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

func kubeconfig(server, ca, token string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: {token: %s}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
`, server, base64.StdEncoding.EncodeToString([]byte(ca)), token)
}

// replace replaces a file like a rotator.
func replace(t testing.TB, path, text string) {
	must(0, os.WriteFile(path+".new", []byte(text), 0o600))
	must(0, os.Rename(path+".new", path))
}

// The probe, the approver and the Node watch use a replaced kubeconfig within ten seconds, even if
// only its token has changed.
func TestAKubeconfigIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		path := filepath.Join(t.TempDir(), "factory.yaml")
		a, b := newFakeCluster("factory"), newFakeCluster("factory")
		clusters := map[string]*fakeCluster{"https://a.example": a, "https://b.example": b}
		var dialled atomic.Int64
		w.manager.Source = &Sources{Bindings: []Binding{{ClusterID: factoryID, Kubeconfig: path}}}
		w.manager.Dial = func(access Access) (*Connection, error) {
			dialled.Add(1)
			connection := clusters[access.Config.Host].connection()
			connection.ServerURL = access.Config.Host
			return connection, nil
		}
		ca := string(testCA())
		replace(t, path, kubeconfig("https://a.example", ca, "one"))
		w.register(factoryID, a)
		w.own(factory)
		w.put(factoryID, "edge-1", flexnode.Desired{})
		pass(time.Minute)
		equal(t, "connections of a file that did not change", dialled.Load(), 1)
		replace(t, path, kubeconfig("https://b.example", ca, "one"))
		pass(10 * time.Second)
		layer := must(w.store.Layers.Get(context.Background(), w.cluster(factory).Facts)).Value
		if !strings.Contains(string(layer), `"serverURL":"https://b.example"`) {
			t.Errorf("the facts of nodes: %s", layer)
		}
		equal(t, "a request at the former one", a.Ask(w.joining("at-a", "edge-1")), "")
		equal(t, "a request at the new one", b.Ask(w.joining("at-b", "edge-1")), "Approved")
		b.join("edge-1", corev1.ConditionTrue)
		equal(t, "the Node at the new one", w.ready(factory+"/edge-1").Status, "True")
		replace(t, path, kubeconfig("https://b.example", ca, "two"))
		pass(10 * time.Second)
		equal(t, "connections of three files", dialled.Load(), 3)
		must(0, os.Remove(path))
		pass(time.Minute)
		equal(t, "it is reachable while its file is away", w.cluster(factory).Properties.Reachable, true)
	})
}

// A refused connection is made again, with the source's present access.
func TestARefusedConnectionIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newWorld(t), newFakeCluster("factory")
		var dialled atomic.Int64
		doubtful := &wire{}
		w.manager.Dial = func(Access) (*Connection, error) {
			dialled.Add(1)
			connection := c.connection()
			connection.wire = doubtful
			return connection, nil
		}
		w.register(factoryID, c)
		w.own(factory)
		pass(time.Minute)
		doubtful.doubtful.Store(true)
		pass(sourceInterval)
		equal(t, "connections", dialled.Load(), 2)
		pass(time.Minute)
		if n := dialled.Load(); n < 3 || n > 4 {
			t.Errorf("%d connections were made within a minute", n)
		}
	})
}

// apiServer starts an API server that accepts one token.
func apiServer(t *testing.T, token *atomic.Pointer[string]) (url, ca string) {
	h := newHostile(t, map[string]http.HandlerFunc{systemPath + "/secrets": http.NotFound})
	h.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer "+*token.Load() {
			h.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":401,`+
			`"reason":"Unauthorized"}`)
	})
	return h.URL, h.ca
}

// A real connection: its requests, and when it is doubtful.
func TestAConnection(t *testing.T) {
	var token atomic.Pointer[string]
	good, bad := "good", "another"
	token.Store(&good)
	server, ca := apiServer(t, &token)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	dial := func(text string) *Connection {
		replace(t, path, text)
		return must(Dial(must((Binding{Kubeconfig: path, Local: true}).access())))
	}
	c := dial(kubeconfig(server, ca, good))
	found, err := c.ask(t.Context())
	if err != nil || found.version != "1.35.4" || found.server != c.server("u") ||
		found.warnings != nil || c.doubtful() || c.ServerURL != server || string(c.CA) != ca {
		t.Errorf("%+v, %v, doubtful %v", found, err, c.doubtful())
	}
	token.Store(&bad)
	if _, err := c.ask(t.Context()); err == nil || !c.doubtful() {
		t.Errorf("with a token that is refused: %v, doubtful %v", err, c.doubtful())
	}
	token.Store(&good)
	must(c.ask(t.Context()))
	equal(t, "it is in doubt with a token that is taken again", c.doubtful(), false)
	stranger := dial(kubeconfig(server, string(testCA()), good))
	if _, err := stranger.ask(t.Context()); err == nil || !stranger.doubtful() {
		t.Errorf("with another CA: %v, doubtful %v", err, stranger.doubtful())
	}
}

// A kubeconfig is used only for the cluster that the operator has bound it to, and a change of any
// file that it names counts.
func TestBindings(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "factory.yaml")
	s := &Sources{Bindings: []Binding{
		{ClusterID: strings.ToUpper(factoryID), Kubeconfig: path, Trusted: true}}}
	for _, tt := range []struct {
		id, name string
		ok       bool
	}{
		{factoryID, "", true}, {factoryID, "factory", true}, {factoryID, "factory.yaml", true},
		{factoryID, "harbour", false}, {harbourID, "factory", false},
		{harbourID, "factory.yaml", false}, {harbourID, path, false}, {harbourID, "", true},
	} {
		err := s.Check(tt.id, tt.name)
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, ErrNotBound) {
			t.Errorf("%s names %q: %v", tt.id, tt.name, err)
		}
	}
	ctx := t.Context()
	if _, err := s.Access(ctx, flexnode.Cluster{ID: harbourID}, false); err == nil ||
		!strings.Contains(err.Error(), "no identity") {
		t.Errorf("without a binding and an identity: %v", err)
	}
	named := strings.Replace(kubeconfig("https://a.example", "", "x"), "token: x",
		"tokenFile: token", 1)
	replace(t, path, named)
	seen := map[string]bool{}
	for _, token := range []string{"one", "two"} {
		replace(t, filepath.Join(dir, "token"), token+"\n")
		a, err := s.Access(ctx, flexnode.Cluster{ID: factoryID}, false)
		if err != nil || a.Config.BearerToken != token || seen[a.Fingerprint] {
			t.Errorf("with the token %s: %+v, %v", token, a, err)
		}
		seen[a.Fingerprint] = true
	}
	for what, bindings := range map[string][]Binding{
		"no id":   {{ClusterID: "factory", Kubeconfig: path}},
		"no file": {{ClusterID: factoryID, Kubeconfig: ""}},
		"one file": {{ClusterID: factoryID, Kubeconfig: path},
			{ClusterID: harbourID, Kubeconfig: path}},
	} {
		equal(t, what, len(CheckBindings(bindings)), 1)
	}
	equal(t, "good ones", CheckBindings([]Binding{{ClusterID: factoryID, Kubeconfig: path},
		{ClusterID: harbourID, Kubeconfig: path + "2"}}), nil)
}

// The work in a cluster ends when its binding is removed.
func TestABindingIsTakenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newWorld(t), newFakeCluster("factory")
		path := filepath.Join(t.TempDir(), "factory.yaml")
		replace(t, path, kubeconfig("https://a.example", string(testCA()), "x"))
		sources := &Sources{Bindings: []Binding{{ClusterID: factoryID, Kubeconfig: path}}}
		var removed atomic.Bool
		w.manager.Source = sourceOf(func(ctx context.Context, c flexnode.Cluster) (Access, error) {
			if removed.Load() {
				sources.Bindings = nil
			}
			return sources.Access(ctx, c, false)
		})
		w.manager.Dial = func(Access) (*Connection, error) { return c.connection(), nil }
		w.register(factoryID, c)
		w.own(factory)
		w.token("edge-1")
		removed.Store(true)
		pass(10 * time.Second)
		equal(t, "a request", c.Ask(w.joining("late", "edge-1")), "")
		pass(time.Minute)
		equal(t, "the cluster is reachable", w.cluster(factory).Properties.Reachable, false)
	})
}

// fakeTokens issues numbered tokens.
type fakeTokens struct {
	issued atomic.Int64
	scope  atomic.Pointer[string]
}

func (f *fakeTokens) GetToken(
	_ context.Context, o policy.TokenRequestOptions,
) (azcore.AccessToken, error) {
	f.scope.Store(&o.Scopes[0])
	return azcore.AccessToken{Token: fmt.Sprintf("token-%d", f.issued.Load())}, nil
}

// N18: a kubeconfig is parsed again when its file, size or time changes, and always if it may name
// other files.
func TestKubeconfigsAreParsedWhenTheyChange(t *testing.T) {
	path, ca := filepath.Join(t.TempDir(), "factory.yaml"), string(testCA())
	binding := Binding{ClusterID: factoryID, Kubeconfig: path}
	s, of := &Sources{Bindings: []Binding{binding}}, flexnode.Cluster{ID: factoryID}
	config := func() *rest.Config { return must(s.Access(t.Context(), of, false)).Config }
	write := func(token string, age time.Duration) {
		replace(t, path, kubeconfig("https://a.example", ca, token))
		at := time.Now().Add(-age)
		must(0, os.Chtimes(path, at, at))
	}
	write("one", time.Hour)
	first := config()
	equal(t, "a file that has not changed is read once", config() == first, true)
	write("two", time.Hour)
	equal(t, "the token after a change", config().BearerToken, "two")
	write("six", 0)
	if got := config(); got.BearerToken != "six" || config() == got {
		t.Errorf("a file that may change within its time: %s", got.BearerToken)
	}
	write("one", time.Hour)
	s.Bindings[0].Trusted = true
	first = config()
	equal(t, "a trusted file is parsed again", config() != first, true)
	must(0, os.Remove(path))
	if _, err := s.Access(t.Context(), of, false); err == nil {
		t.Error("a file that is gone gives an access")
	}
}

// The owner of a registration sees none of the operator's files and addresses.
func TestUnreachableTellsNoSecrets(t *testing.T) {
	for want, cause := range map[string]error{
		"was deleted or moved": fmt.Errorf("cannot get it: %w", &azcore.ResponseError{
			StatusCode: 404, ErrorCode: "10.1.2.3"}),
		"No kubeconfig is bound": fmt.Errorf("cannot use it: %w", ErrNotBound),
		"refuses the provider's": apierrors.NewUnauthorized("at 10.1.2.3"),
		"is not trusted": &tls.CertificateVerificationError{
			Err: x509.UnknownAuthorityError{Cert: &x509.Certificate{}}},
		"refuses the provider's requests": apierrors.NewBadRequest("at 10.1.2.3"),
		"access to it is denied": apierrors.NewInternalError(
			errors.New("at 10.1.2.3")),
		"in time": fmt.Errorf("Get \"https://10.1.2.3\": %w", context.DeadlineExceeded),
		"does not answer, or": errors.Join(
			&fs.PathError{Op: "open", Path: "/etc/flexnode-rp/10.1.2.3", Err: fs.ErrNotExist},
			&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("10.1.2.3: refused")}),
	} {
		got := unreachable(cause)
		if !strings.Contains(got, want) || strings.Contains(got, "10.1.2.3") ||
			strings.Contains(got, "/etc") {
			t.Errorf("%v is reported as %q", cause, got)
		}
	}
}

// A registration shows that its cluster was deleted or moved in Azure; while that answers, it is
// used.
func TestAClusterThatAzureDoesNotHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newWorld(t), newFakeCluster("factory")
		var gone atomic.Bool
		w.manager.Source = sourceOf(func(ctx context.Context, k flexnode.Cluster) (Access, error) {
			if gone.Load() {
				return Access{}, &azcore.ResponseError{StatusCode: http.StatusNotFound}
			}
			return w.source.Access(ctx, k, false)
		})
		w.register(factoryID, c)
		w.own(factory)
		pass(time.Minute)
		gone.Store(true)
		pass(2 * probeInterval)
		got := w.cluster(factory)
		if !got.Properties.Reachable || !strings.Contains(got.Probe.Message(), notInAzure) {
			t.Errorf("it was moved: %+v", got.Probe)
		}
		c.Down.Store(true)
		pass(2 * time.Minute)
		got = w.cluster(factory)
		if got.Properties.Reachable || got.Probe.Unreachable != notInAzure {
			t.Errorf("it was deleted: %+v", got.Probe)
		}
	})
}

// ownerRole is the role "Owner" of Azure.
const ownerRole = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635"

// newManager returns a source that asks a simulated Azure with one cluster, and its clock.
func newManager(t *testing.T, k azuresim.Cluster, now func() time.Time) (
	*ResourceManager, *azuresim.Sim,
) {
	const client = "aaaaaaaa-0000-0000-0000-00000000000a"
	sim := &azuresim.Sim{}
	server := httptest.NewTLSServer(sim)
	t.Cleanup(server.Close)
	k.ID = factoryID
	sim.Load(azuresim.World{
		TenantID: tenant, Subscriptions: []azuresim.Subscription{{ID: subscription}},
		ResourceGroups: []string{"/subscriptions/" + subscription + "/resourceGroups/Edge"},
		Applications: []azuresim.Application{{ClientID: client, ObjectID: "provider",
			Secrets: []azuresim.Secret{{Value: "s"}}}},
		Clusters: []azuresim.Cluster{k},
		Assignments: []azuresim.Assignment{{Scope: "/subscriptions/" + subscription,
			RoleID: ownerRole, PrincipalID: "provider"}},
	})
	options := policy.ClientOptions{Transport: server.Client(), Cloud: cloud.Configuration{
		ActiveDirectoryAuthorityHost: server.URL,
		Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
			cloud.ResourceManager: {Endpoint: server.URL, Audience: server.URL}},
	}}
	identity := must(azidentity.NewClientSecretCredential(tenant, client, "s",
		&azidentity.ClientSecretCredentialOptions{ClientOptions: options,
			DisableInstanceDiscovery: true}))
	made := func(s string) (*armcontainerservice.ManagedClustersClient, error) {
		return armcontainerservice.NewManagedClustersClient(s, identity,
			&arm.ClientOptions{ClientOptions: options, DisableRPRegistration: true})
	}
	return &ResourceManager{Clusters: made, Tokens: &fakeTokens{}, Now: now}, sim
}

// A cluster without local accounts is reached with the provider's own tokens, which are renewed
// without a new connection.
func TestLocalAccountsAreDisabled(t *testing.T) {
	var token atomic.Pointer[string]
	first, second := "token-0", "token-1"
	token.Store(&first)
	server, ca := apiServer(t, &token)
	m, _ := newManager(t, azuresim.Cluster{Server: server, CA: ca, Entra: true,
		LocalAccountsDisabled: true}, time.Now)
	s := &Sources{Manager: m}
	access := must(s.Access(t.Context(), flexnode.Cluster{ID: factoryID}, false))
	if access.Config.ExecProvider != nil || access.Config.AuthProvider != nil {
		t.Error("it runs what Resource Manager says")
	}
	access.Local = true // as the test's API server is
	c := must(Dial(access))
	equal(t, "the server", must(c.ask(t.Context())).server, c.server("u"))
	tokens := m.Tokens.(*fakeTokens)
	equal(t, "the scope", *tokens.scope.Load(), "6dae42f8-4368-4678-94ff-3960e28e3630/.default")
	tokens.issued.Add(1)
	token.Store(&second)
	must(c.ask(t.Context()))
	equal(t, "it is in doubt with the next token", c.doubtful(), false)
}

// Static credentials are used only if the operator allows them.
func TestStaticCredentials(t *testing.T) {
	admin := kubeconfig("https://factory.example:6443", string(testCA()), "admin-token")
	m, _ := newManager(t, azuresim.Cluster{AdminKubeconfig: admin}, time.Now)
	_, err := m.Access(t.Context(), flexnode.Cluster{ID: factoryID}, false)
	if !errors.Is(err, errStatic) {
		t.Errorf("without the setting: %v", err)
	}
	m, _ = newManager(t, azuresim.Cluster{AdminKubeconfig: admin}, time.Now)
	m.Admin = true
	access, err := m.Access(t.Context(), flexnode.Cluster{ID: factoryID}, false)
	if err != nil || access.Config.BearerToken != "admin-token" ||
		access.Config.Host != "https://factory.example:6443" {
		t.Errorf("with the setting: %+v, %v", access, err)
	}
}

// Resource Manager gets few requests, and an earlier one if its last answer was of no use.
func TestAnswersOfResourceManager(t *testing.T) {
	var now atomic.Int64
	clock := func() time.Time { return time.Unix(now.Load(), 0) }
	m, sim := newManager(t, azuresim.Cluster{Server: "https://one.example", CA: string(testCA()),
		Entra: true}, clock)
	host := func(again bool) string {
		return must(m.Access(t.Context(), flexnode.Cluster{ID: factoryID}, again)).Config.Host
	}
	equal(t, "at first", host(false), "https://one.example")
	sim.AddCluster(azuresim.Cluster{ID: strings.ToLower(factoryID), Server: "https://two.example",
		CA: string(testCA()), Entra: true})
	equal(t, "at once", host(true), "https://one.example")
	now.Add(int64(refusedAge / time.Second))
	equal(t, "as long as it is of use", host(false), "https://one.example")
	equal(t, "after a refusal", host(true), "https://two.example")
	// Answers about clusters that are not asked for any more are forgotten.
	now.Add(int64(answerAge / time.Second))
	if _, err := m.Access(t.Context(), flexnode.Cluster{ID: factoryID + "2"}, false); err == nil {
		t.Error("a cluster that does not exist has a kubeconfig")
	}
	known := 0
	m.known.Range(func(any, any) bool { known++; return true })
	equal(t, "known answers", known, 1)
}
