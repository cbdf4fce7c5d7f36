package azuresim_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
)

const machineID = groupID + "/providers/Microsoft.HybridCompute/machines/"

// machine returns a template resource of a type that Resource Manager itself simulates.
func machine(name string) string {
	return `{"type": "Microsoft.HybridCompute/machines", "apiVersion": "2024-07-10", "name": "` +
		name + `", "location": "lab"}`
}

// behind puts a handler in front of the provider's.
func (d *deployer) behind(first func(w http.ResponseWriter, r *http.Request) (answered bool)) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !first(w, r) {
			d.nodes.ServeHTTP(w, r)
		}
	}))
	d.t.Cleanup(server.Close)
	d.Provider = &azuresim.Provider{URLs: []string{server.URL}, Client: server.Client()}
}

// ask sends a request to Resource Manager as the operator and returns the status and body.
func (d *deployer) ask(method, path, body string) (int, string) {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), method,
		d.server.URL+path+"?api-version=2024-07-01", strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	token, err := d.credential(d.t, operator, "correct-horse").GetToken(d.t.Context(), scope(d.azure))
	if err != nil {
		d.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token.Token)
	response, err := d.server.Client().Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// A canceled deployment starts nothing new and cancels what is running.
func TestDeploymentThatIsCanceled(t *testing.T) {
	d := newDeployer(t)
	asked := make(chan struct{})
	var once sync.Once
	d.behind(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet {
			once.Do(func() { close(asked) })
		}
		return false
	})
	of := properties(templateOf(t, node("slow", "")+","+machine("late")+","+node("later", ""), ""),
		nil)
	if _, err := d.client.BeginCreateOrUpdate(t.Context(), group, "long", of, nil); err != nil {
		t.Fatal(err)
	}
	<-asked
	if _, err := d.client.Cancel(t.Context(), group, "long", nil); err != nil {
		t.Fatal(err)
	}
	d.Close()
	if status, text := d.ask(http.MethodGet, machineID+"late", ""); status != http.StatusNotFound {
		t.Errorf("it was made all the same: %d %s", status, text)
	}
	d.operations("long", "Create Canceled Conflict prod/slow")
	of = properties(templateOf(t, "", ""), nil)
	if _, err := d.client.BeginCreateOrUpdate(t.Context(), group, "next", of,
		nil); code(err) != "ServiceUnavailable" {
		t.Errorf("after its end: %v", err)
	}
}

// Of several concurrent deployments with one name, one runs.
func TestDeploymentsAtOnce(t *testing.T) {
	d := newDeployer(t)
	of := properties(templateOf(t, node("slow", ""), ""), nil)
	var begun, refused atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			_, err := d.client.BeginCreateOrUpdate(t.Context(), group, "same", of, nil)
			switch {
			case err == nil:
				begun.Add(1)
			case code(err) == "DeploymentActive":
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if begun.Load() != 1 || refused.Load() != 7 {
		t.Errorf("%d were begun, %d refused", begun.Load(), refused.Load())
	}
}

// Requests to a busy provider are retried; a provider that stays busy, or does not return JSON,
// fails the deployment.
func TestDeploymentWithoutProvider(t *testing.T) {
	d := newDeployer(t)
	for _, tt := range []struct {
		name, want string
		status     int
		times      int32
		body       string
	}{
		{"busy", "", http.StatusTooManyRequests, 2, `{"error": {"code": "TooMany", "message": "x"}}`},
		{"down", "", http.StatusServiceUnavailable, 4, ""},
		{"gone", "503", http.StatusServiceUnavailable, 1000, ""},
		{"html", "InvalidResponse", http.StatusOK, 1000, "<html>"},
	} {
		var left atomic.Int32
		left.Store(tt.times)
		d.behind(func(w http.ResponseWriter, _ *http.Request) bool {
			if n := left.Add(-1); n < 0 || n%2 == 0 && tt.times < 1000 { // the PUT, and polls
				return false
			}
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(tt.status)
			_, _ = w.Write([]byte(tt.body))
			return true
		})
		_, err := d.create(tt.name, properties(templateOf(t, node(tt.name, ""), ""), nil))
		if tt.want == "" && err != nil || tt.want != "" &&
			(err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v; want %s", tt.name, err, tt.want)
		}
	}
}

// A failed reference is retried, a failed action is not: it may have had its effect.
func TestReferencesWithoutProvider(t *testing.T) {
	d := newDeployer(t)
	d.nodes.kept["there"] = map[string]any{"properties": map[string]any{}}
	var reads, actions atomic.Int32
	d.behind(func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Retry-After", "0")
		if r.Method == http.MethodGet && reads.Add(1) > 2 {
			return false
		}
		if r.Method == http.MethodPost {
			actions.Add(1)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	id := clusterID + "/flexNodeConfig/there'"
	_, err := d.create("refers", properties(templateOf(t, "", `"a": {"type": "object", "value": `+
		`"[reference('`+id+`, '2026-05-01-preview')]"}, "b": {"type": "object", "value": `+
		`"[listConfigUrl('`+id+`, '2026-05-01-preview')]"}`), nil))
	if err == nil || !strings.Contains(err.Error(), "template outputs: 'b'") || actions.Load() != 1 ||
		reads.Load() != 3 {
		t.Errorf("%d reads, %d actions: %v", reads.Load(), actions.Load(), err)
	}
}

// A truncated response is not reported as too large.
func TestForwardOfAnAnswerThatIsCut(t *testing.T) {
	d := newDeployer(t)
	d.behind(func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("{"))
		return true
	})
	if status, text := d.ask(http.MethodGet, clusterID+"/flexNodeConfig/n", ""); status !=
		http.StatusBadGateway {
		t.Errorf("%d %s", status, text)
	}
}

// A path that is not a deployment of a resource group is refused.
func TestDeploymentsElsewhere(t *testing.T) {
	d := newDeployer(t)
	const of = "/providers/Microsoft.Resources/deployments"
	body := encoded(t, properties(templateOf(t, machine("m"), ""), nil))
	for _, tt := range []struct {
		path string
		want int
	}{
		{groupID + of, http.StatusMethodNotAllowed},
		{groupID + of + "/a%20b", http.StatusBadRequest},
		{groupID + of + "/" + strings.Repeat("n", 65), http.StatusBadRequest},
		{clusterID + of + "/n", http.StatusBadRequest},
		{groupID + of + "/" + strings.Repeat("Ⱥ", 30) + "/operations", http.StatusNotFound},
		{groupID + of + "/(ok)_-.", http.StatusCreated},
	} {
		if status, text := d.ask(http.MethodPut, tt.path, body); status != tt.want {
			t.Errorf("%s: %d %.300s", tt.path, status, text)
		}
	}
	if status, text := d.ask(http.MethodGet, clusterID+of+"/n/operations", ""); status !=
		http.StatusNotFound {
		t.Errorf("of a cluster: %d %.300s", status, text)
	}
	huge := `{"properties": {"mode": "Incremental", "template": {"x": "` + strings.Repeat("x", 4<<20)
	if status, text := d.ask(http.MethodPut, groupID+of+"/huge", huge); status !=
		http.StatusRequestEntityTooLarge {
		t.Errorf("%d %.300s", status, text)
	}
}
