package azuresim_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	armruntime "github.com/Azure/azure-sdk-for-go/sdk/azcore/arm/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
)

// provider returns a resource provider whose deletions take one poll, at the address by which the
// client reached Resource Manager (RPC, Referer).
func provider(t *testing.T, asked *[]string) *azuresim.Provider {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.Method+" "+r.URL.Path)
		public, err := url.Parse(r.Header.Get("Referer"))
		if err != nil {
			t.Error(err)
		}
		public.Path = "/subscriptions/" + subscription +
			"/providers/Microsoft.ContainerService/locations/lab/operationStatuses/1"
		if r.Method == http.MethodDelete {
			w.Header().Set("Azure-AsyncOperation", public.String())
			public.Path = strings.Replace(public.Path, "Statuses", "Results", 1)
			w.Header().Set("Location", public.String())
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"status":"Succeeded"}`)
	}))
	t.Cleanup(server.Close)
	return &azuresim.Provider{URLs: []string{server.URL}, Client: server.Client()}
}

// Azure's client polls an operation of the provider at URLs that lead through Resource Manager. A
// cluster that Azure itself has is not forwarded for deletion.
func TestOperationsOfTheProvider(t *testing.T) {
	a := start(t)
	var asked []string
	a.Provider = provider(t, &asked)
	credential, options := a.arm(t)
	client, err := armresources.NewClient(subscription, credential, options)
	if err != nil {
		t.Fatal(err)
	}
	registered := groupID + "/providers/Microsoft.ContainerService/managedClusters/elsewhere"
	for id, want := range map[string]int{registered: 2, clusterID: 0} {
		asked = nil
		poller, err := client.BeginDeleteByID(t.Context(), id, "2026-05-01-preview", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := poller.PollUntilDone(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if len(asked) != want {
			t.Errorf("%s: the provider was asked %v", id, asked)
		}
	}
}

// Actions that only the provider implements are forwarded, even for a cluster that Azure itself
// has, unless a segment of the path is too long.
func TestActionsOfTheProvider(t *testing.T) {
	a := start(t)
	var asked []string
	a.Provider = provider(t, &asked)
	credential, options := a.arm(t)
	client, err := armruntime.NewPipeline("test", "v1", credential, runtime.PipelineOptions{}, options)
	if err != nil {
		t.Fatal(err)
	}
	long := "flexNodeConfig/" + strings.Repeat("x", 261) + "/diagnose"
	for action, want := range map[string]int{
		"summarizeFlexNodes": 1, "allowVersions": 1, "listClusterUserCredential": 0, long: 0,
	} {
		asked = nil
		r, err := runtime.NewRequest(t.Context(), http.MethodPost,
			a.server.URL+clusterID+"/"+action+"?api-version=2026-05-01-preview")
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if (response.StatusCode == http.StatusOK) == (action == long) || len(asked) != want {
			t.Errorf("%s: %s, the provider was asked %v", action, response.Status, asked)
		}
	}
}
