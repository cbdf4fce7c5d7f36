package arc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/azuresim/azuresimtest"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/identity"
)

const (
	subscription = "22222222-2222-2222-2222-222222222222"
	groupID      = "/subscriptions/" + subscription + "/resourceGroups/edge"
	clusterID    = groupID + "/providers/Microsoft.ContainerService/managedClusters/prod"
	operator     = "aaaaaaaa-0000-0000-0000-0000000000f1"
	canary       = "canary-secret"
)

// fuse ends a run at one of its touches: a request to Azure, a program, a record.
type fuse struct {
	mu   sync.Mutex
	left int // 0 does not end it
	n    int
	kill context.CancelFunc
}

var errKilled = errors.New("killed")

// touch counts; an error means that the run is dead.
func (f *fuse) touch() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	if f.left > 0 && f.n >= f.left {
		f.kill()
		return errKilled
	}
	return nil
}

// world is an Azure, a machine with the Arc agent, and a record that outlives runs.
type world struct {
	t      *testing.T
	sim    *azuresim.Sim
	agent  azuresim.ConnectedMachine
	record Record
	fuse   *fuse
	argv   []string
	absent bool
	// proxy is the configured one; warned is what the owner of the machine was told.
	proxy  config.Secret
	warned []string
}

// The server is one for all tests; each has its own world behind it.
var (
	server  *httptest.Server
	tunnel  *azuresimtest.Tunnel
	current *world
)

func TestMain(m *testing.M) {
	server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/providers/") && r.Method != http.MethodGet &&
			current.fuse.touch() != nil {
			panic(http.ErrAbortHandler) // dead before the request arrives
		}
		current.sim.ServeHTTP(w, r)
		if strings.Contains(r.URL.Path, "/providers/") && r.Method != http.MethodGet {
			_ = current.fuse.touch() // dead before the answer arrives
		}
	}))
	tunnel = azuresimtest.NewTunnel()
	os.Exit(azuresimtest.Main(m))
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, sim: &azuresim.Sim{}, fuse: &fuse{}, proxy: config.Secret(tunnel.URL)}
	w.sim.Load(azuresim.World{
		Subscriptions:  []azuresim.Subscription{{ID: subscription}},
		ResourceGroups: []string{groupID},
		Applications: []azuresim.Application{{ClientID: "aaaaaaaa-0000-0000-0000-000000000001",
			ObjectID: operator, Secrets: []azuresim.Secret{{Value: canary}}}},
		Clusters: []azuresim.Cluster{{ID: clusterID, Entra: true, AzureRBAC: true}},
		Assignments: []azuresim.Assignment{{Scope: "/subscriptions/" + subscription,
			RoleID: "8e3af657-a8ff-443c-a75c-2fe8c4bcb635", PrincipalID: operator}},
	})
	w.agent = azuresim.ConnectedMachine{Endpoint: server.URL, Dir: t.TempDir(),
		Client: server.Client()}
	current = w
	return w
}

// Run is azcmagent.
func (w *world) Run(
	ctx context.Context, _ time.Duration, secret []byte, argv ...string,
) ([]byte, error) {
	if w.absent {
		return nil, fmt.Errorf("cannot run azcmagent: %w", fs.ErrNotExist)
	}
	w.argv = append(w.argv, strings.Join(argv, " "))
	switch argv[1] {
	case "show":
		c, _ := w.agent.Show()
		return json.Marshal(struct {
			azuresim.Connection
			Status string `json:"status"`
		}{c, w.agent.Status(ctx)})
	case "config":
		return w.setting(argv)
	}
	if err := w.fuse.touch(); err != nil {
		return nil, err
	}
	if argv[1] == "disconnect" {
		return nil, w.agent.Disconnect(ctx, "", true)
	}
	var settings map[string]string
	if err := json.Unmarshal(secret, &settings); err != nil {
		w.t.Errorf("the settings of connect: %v", err)
	}
	err := w.agent.Connect(ctx, azuresim.Connection{SubscriptionID: settings["subscription-id"],
		ResourceGroup: settings["resource-group"], TenantID: settings["tenant-id"],
		Location: settings["location"], ResourceName: settings["resource-name"],
		Tags:        tagged(settings["tags"]),
		AccessToken: settings["access-token"]})
	return nil, errors.Join(err, w.fuse.touch())
}

// tagged splits tags as azcmagent does.
func tagged(list string) map[string]string {
	tags := map[string]string{}
	for pair := range strings.SplitSeq(list, ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			tags[key] = value
		}
	}
	return tags
}

// setting is azcmagent config.
func (w *world) setting(argv []string) ([]byte, error) {
	if argv[2] == "get" {
		value, err := w.agent.Setting(argv[3])
		return []byte(value + "\n"), err
	}
	if err := w.fuse.touch(); err != nil {
		return nil, err
	}
	err := w.agent.Set(argv[3], strings.Join(argv[4:], ""))
	return nil, errors.Join(err, w.fuse.touch())
}

func (w *world) RestartUnit(context.Context, string) error { return nil }

func (w *world) config() config.Azure {
	yes := true
	return config.Azure{
		TenantID: azuresim.DefaultTenant, SubscriptionID: subscription, Cloud: config.PublicCloud,
		AuthorityHost: server.URL, ResourceManagerEndpoint: server.URL,
		ServicePrincipal: &config.ServicePrincipal{TenantID: azuresim.DefaultTenant,
			ClientID: "aaaaaaaa-0000-0000-0000-000000000001", ClientSecret: canary},
		TargetCluster:     config.TargetCluster{ResourceID: clusterID},
		KubeletCredential: config.CredentialToken,
		Arc: &config.Arc{MachineName: "edge-1", ResourceGroup: "edge", Location: "lab",
			AutoRoleAssignment: &yes, Roles: []string{config.RoleReader,
				config.RoleRBACClusterAdmin, "0ab0b1a8-8aac-4efd-b8c2-3ee1fb270be8"}},
	}
}

// arc is a run that dies at its n-th touch; 0 lets it live.
func (w *world) arc(n int) (Arc, context.Context) {
	w.t.Helper()
	ctx, kill := context.WithCancel(w.t.Context())
	w.t.Cleanup(kill)
	w.fuse = &fuse{left: n, kill: kill}
	c := w.config()
	credential, err := identity.Manager(c, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	options := identity.ARM(c, nil)
	options.Retry = policy.RetryOptions{MaxRetries: 2, RetryDelay: time.Millisecond,
		MaxRetryDelay: 2 * time.Millisecond}
	save := func(r Record) error {
		if err := w.fuse.touch(); err != nil {
			return err
		}
		w.record = r
		return w.fuse.touch()
	}
	warn := func(format string, args ...any) {
		w.warned = append(w.warned, fmt.Sprintf(format, args...))
	}
	return Arc{Config: c, Machine: w, Restart: w.RestartUnit, Credential: credential,
		Options: options, Save: save, Proxy: w.proxy, Warn: warn,
		Say: func(string, ...any) {}, Poll: time.Millisecond}, ctx
}

// given counts the role assignments beside the operator's.
func (w *world) given() int { return len(w.sim.Assignments()) - 1 }

// Killed at each touch of an enrolment, the next run finishes with one machine and one of each
// role; killed at each touch of the leaving, the next run leaves nothing.
func TestKilledAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a run for each write takes long; make test has it")
	}
	whole := newWorld(t)
	a, ctx := whole.arc(0)
	if _, _, err := a.Enrol(ctx, whole.record); err != nil {
		t.Fatal(err)
	}
	enrol := whole.fuse.n
	a, ctx = whole.arc(0)
	if err := a.Leave(ctx, whole.record); err != nil {
		t.Fatal(err)
	}
	leave := whole.fuse.n
	if enrol < 10 || leave < 5 {
		t.Fatalf("%d touches to enrol and %d to leave: the fuse sees too little", enrol, leave)
	}
	for n := 1; n <= enrol; n++ {
		w := newWorld(t)
		a, ctx := w.arc(n)
		if _, _, err := a.Enrol(ctx, w.record); err == nil && n < enrol {
			t.Errorf("killed at %d: no error", n)
		}
		w.enrolAndLeave(fmt.Sprintf("enrolment killed at %d", n))
	}
	for n := 1; n <= leave; n++ {
		w := newWorld(t)
		a, ctx := w.arc(0)
		if _, _, err := a.Enrol(ctx, w.record); err != nil {
			t.Fatal(err)
		}
		a, ctx = w.arc(n)
		_ = a.Leave(ctx, w.record) // dead
		a, ctx = w.arc(0)
		if err := a.Leave(ctx, w.record); err != nil {
			t.Errorf("leaving killed at %d, again: %v", n, err)
		}
		w.gone(fmt.Sprintf("leaving killed at %d", n))
	}
	t.Logf("killed at each of %d touches of an enrolment and %d of leaving", enrol, leave)
}

func (w *world) enrolAndLeave(when string) {
	w.t.Helper()
	a, ctx := w.arc(0)
	if _, _, err := a.Enrol(ctx, w.record); err != nil {
		w.t.Fatalf("%s, again: %v", when, err)
	}
	if machines := w.sim.Machines(); len(machines) != 1 || w.given() != 3 ||
		len(w.record.Assignments) != 3 || !w.record.Connected {
		w.t.Errorf("%s, again: machines %v, %d assignments, record %+v", when, machines, w.given(),
			w.record)
	}
	a, ctx = w.arc(0)
	if err := a.Leave(ctx, w.record); err != nil {
		w.t.Errorf("%s, leave: %v", when, err)
	}
	w.gone(when)
}

func (w *world) gone(when string) {
	w.t.Helper()
	if proxy, err := w.agent.Setting(azuresim.ProxyURL); err != nil || proxy != "" ||
		w.record.Proxy != "" {
		w.t.Errorf("%s: left is the proxy %q (recorded %q), %v", when, proxy, w.record.Proxy, err)
	}
	if _, connected := w.agent.Show(); connected || len(w.sim.Machines()) != 0 || w.given() != 0 {
		w.t.Errorf("%s: left are machines %v, %d assignments, connected %v", when, w.sim.Machines(),
			w.given(), connected)
	}
}

// What others have done is left alone: a machine that is connected, a role that is given.
func TestForeignEnrolmentRemains(t *testing.T) {
	w := newWorld(t)
	a, ctx := w.arc(0)
	if err := a.connect(ctx); err != nil {
		t.Fatal(err)
	}
	principal, err := a.principal(ctx,
		Status{Name: "edge-1", Group: "edge", Subscription: subscription})
	if err != nil {
		t.Fatal(err)
	}
	w.sim.Assign(azuresim.Assignment{Scope: clusterID, RoleID: roleID(config.RoleReader),
		PrincipalID: principal})
	if _, _, err := a.Enrol(ctx, Record{}); err != nil {
		t.Fatal(err)
	}
	if w.record.Connected || len(w.record.Assignments) != 2 {
		t.Errorf("record %+v, want a foreign machine and two roles of ours", w.record)
	}
	if err := a.Leave(ctx, w.record); err != nil {
		t.Fatal(err)
	}
	if _, connected := w.agent.Show(); !connected || len(w.sim.Machines()) != 1 || w.given() != 1 {
		t.Errorf("machines %v, %d assignments, connected %v: another machine's is gone",
			w.sim.Machines(), w.given(), connected)
	}
}

// A principal that Azure does not know everywhere yet is waited for.
func TestNewPrincipalIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	var late atomic.Int64 // by how much Azure's clock has moved on
	w.sim.Now = func() time.Time { return time.Now().Add(time.Duration(late.Load())) }
	w.sim.Adjust(func(k *azuresim.Knobs) { k.Replication = 10 * time.Minute })
	a, ctx := w.arc(0)
	var said []string
	a.Say = func(format string, args ...any) {
		said = append(said, fmt.Sprintf(format, args...))
		late.Add(int64(3 * time.Minute))
	}
	if _, _, err := a.Enrol(ctx, w.record); err != nil {
		t.Fatal(err)
	}
	if w.given() != 3 || !strings.Contains(strings.Join(said, "\n"),
		"waiting for the identity of the Arc machine") {
		t.Errorf("%d assignments; said %q", w.given(), said)
	}
}

// What fails for a while is tried again; what fails for good is one clear error, and the next run
// finishes.
func TestFaults(t *testing.T) {
	tests := []struct {
		name    string
		service azuresim.Service
		fault   azuresim.Fault
		want    string // of the error; "" for success
	}{
		{"slow", azuresim.ARM, azuresim.Fault{Latency: 20 * time.Millisecond}, ""},
		{"Entra ID is ill a while", azuresim.Entra,
			azuresim.Fault{Status: 503, Match: "token", Times: 1}, ""},
		{"Entra ID is ill", azuresim.Entra, azuresim.Fault{Status: 503, Match: "token"},
			"Entra ID has an internal problem"},
		{"the machine hangs up a while", azuresim.ARM,
			azuresim.Fault{Outage: true, Match: "roleAssignments", Times: 2}, ""},
		{"throttled a while", azuresim.ARM,
			azuresim.Fault{Status: 429, Match: "roleAssignments", Times: 2}, ""},
		{"throttled", azuresim.ARM, azuresim.Fault{Status: 429, Match: "roleAssignments"},
			"Resource Manager is throttling"},
		{"machines cannot be registered", azuresim.ARM,
			azuresim.Fault{Status: 500, Match: "machines"},
			"cannot connect the machine to Azure Arc"},
		{"roles cannot be assigned", azuresim.ARM,
			azuresim.Fault{Status: 500, Match: "roleAssignments"},
			"Resource Manager has an internal problem (500)"},
		{"a page", azuresim.ARM, azuresim.Fault{HTML: true, Match: "roleAssignments"},
			"is not Azure: it sent a web page"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.sim.Adjust(func(k *azuresim.Knobs) {
				k.Faults = map[azuresim.Service]azuresim.Fault{tt.service: tt.fault}
			})
			a, ctx := w.arc(0)
			_, _, err := a.Enrol(ctx, w.record)
			if (err == nil) != (tt.want == "") || err != nil &&
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), canary) {
				t.Errorf("a secret is in %q", err)
			}
			w.sim.Adjust(func(k *azuresim.Knobs) { k.Faults = nil })
			w.enrolAndLeave(tt.name)
		})
	}
}

func TestRefusals(t *testing.T) {
	tests := []struct {
		name   string
		change func(*world)
		want   []string
	}{
		{"no Arc agent", func(w *world) { w.absent = true },
			[]string{"azcmagent) is not installed", "install the package azcmagent"}},
		{"may not register machines", func(w *world) { w.sim.Revoke(operator) },
			[]string{"Azure Connected Machine Onboarding", "/resourceGroups/edge "}},
		{"may not assign roles", func(w *world) {
			w.sim.Revoke(operator)
			w.sim.Assign(azuresim.Assignment{Scope: groupID,
				RoleID: "b64e21ea-ac4e-4cdf-9dc9-5b892992bee7", PrincipalID: operator})
		}, []string{"User Access Administrator", clusterID}},
	}
	for _, tt := range tests {
		w := newWorld(t)
		tt.change(w)
		a, ctx := w.arc(0)
		_, _, err := a.Enrol(ctx, w.record)
		if err == nil {
			t.Errorf("%s: no error", tt.name)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", tt.name, err, want)
			}
		}
	}
}

// The token never is an argument, which every user of the machine can see.
func TestNoSecretInArguments(t *testing.T) {
	w := newWorld(t)
	w.enrolAndLeave("a run")
	for _, argv := range w.argv {
		if strings.Contains(argv, "eyJ") || strings.Contains(argv, canary) {
			t.Errorf("a secret is in the arguments: %s", argv)
		}
	}
}
