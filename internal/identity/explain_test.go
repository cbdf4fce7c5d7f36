package identity

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v6"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/config"
)

// What a person reads when Azure cannot be asked, or refuses: one sentence that says what is wrong,
// and what to do.
func TestExplain(t *testing.T) {
	const reader = "acdd72a7-3385-48ef-bd42-f606fba81ae7"
	give := func(sim *azuresim.Sim) {
		sim.Assign(azuresim.Assignment{Scope: clusterID, RoleID: reader, PrincipalID: objectID})
	}
	fault := func(service azuresim.Service, f azuresim.Fault) func(*azuresim.Sim, *config.Azure) {
		return func(sim *azuresim.Sim, _ *config.Azure) {
			give(sim)
			sim.Adjust(func(k *azuresim.Knobs) {
				k.Faults = map[azuresim.Service]azuresim.Fault{service: f}
			})
		}
	}
	tests := []struct {
		name   string
		change func(*azuresim.Sim, *config.Azure)
		want   []string // "" for success
	}{
		{"all is well", func(sim *azuresim.Sim, _ *config.Azure) { give(sim) }, nil},
		{"wrong secret", func(_ *azuresim.Sim,
			c *config.Azure) {
			c.ServicePrincipal.ClientSecret = "guess"
		},
			[]string{"AADSTS7000215", "must be the secret's value"}},
		{"expired secret", func(sim *azuresim.Sim, _ *config.Azure) {
			sim.AddApplication(azuresim.Application{ClientID: clientID, ObjectID: objectID,
				Secrets: []azuresim.Secret{{Value: canary, Expires: time.Now().Add(-time.Hour)}}})
		}, []string{"AADSTS7000222", "az ad app credential reset --append --id"}},
		{"wrong application", func(_ *azuresim.Sim, c *config.Azure) {
			c.ServicePrincipal.ClientID = "aaaaaaaa-0000-0000-0000-000000000009"
		}, []string{"AADSTS700016", "azure.servicePrincipal.clientId"}},
		{"wrong tenant", func(_ *azuresim.Sim,
			c *config.Azure) {
			c.ServicePrincipal.TenantID = subscription
		}, []string{"tenant"}},
		{"no consent", func(sim *azuresim.Sim, _ *config.Azure) {
			sim.AddApplication(azuresim.Application{ClientID: clientID, ObjectID: objectID,
				ConsentMissing: true, Secrets: []azuresim.Secret{{Value: canary}}})
		}, []string{"AADSTS65001", "an administrator of the tenant must give consent"}},
		{"no role", func(*azuresim.Sim, *config.Azure) {},
			[]string{"lacks permission on " + clusterID, config.RoleClusterUser,
				"az role assignment create"}},
		{"another subscription", func(sim *azuresim.Sim, c *config.Azure) {
			c.TargetCluster.ResourceID = strings.Replace(clusterID, subscription,
				"99999999-9999-9999-9999-999999999999", 1)
		}, []string{"the subscription does not exist", "azure.targetCluster.resourceId"}},
		{"no such cluster", func(sim *azuresim.Sim, c *config.Azure) {
			sim.Assign(azuresim.Assignment{Scope: groupID, RoleID: reader, PrincipalID: objectID})
			c.TargetCluster.ResourceID = clusterID + "x"
		}, []string{clusterID + "x does not exist"}},
		{"a page instead of Resource Manager", fault(azuresim.ARM, azuresim.Fault{HTML: true}),
			[]string{"is not Azure: it sent a web page", "check the proxy"}},
		{"a page instead of Entra ID", fault(azuresim.Entra, azuresim.Fault{HTML: true}),
			[]string{"is not Azure: it sent a web page"}},
		{"Resource Manager is throttling", fault(azuresim.ARM, azuresim.Fault{Status: 429}),
			[]string{"throttling", "try again"}},
		{"Resource Manager throttles a while",
			fault(azuresim.ARM, azuresim.Fault{Status: 429, Times: 2}), nil},
		{"Resource Manager is ill", fault(azuresim.ARM, azuresim.Fault{Status: 503}),
			[]string{"an internal problem (503)", "try again later"}},
		{"Resource Manager hangs up a while",
			fault(azuresim.ARM, azuresim.Fault{Outage: true, Times: 2}), nil},
		{"Entra ID is ill", fault(azuresim.Entra, azuresim.Fault{Status: 503, Match: "token"}),
			[]string{"an internal problem"}},
		{"Entra ID is ill a while", fault(azuresim.Entra,
			azuresim.Fault{Status: 503, Match: "token", Times: 2}), nil},
		{"slow", fault(azuresim.ARM, azuresim.Fault{Latency: 100 * time.Millisecond}), nil},
		{"no server", func(_ *azuresim.Sim,
			c *config.Azure) {
			c.ResourceManagerEndpoint = "https://127.0.0.1:1"
		},
			[]string{"500011"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sim, c := azure(t), principal()
			tt.change(sim, &c)
			err := Explain(readCluster(t, c),
				Need{Doing: "read the cluster", Role: config.RoleClusterUser,
					Scope: c.TargetCluster.ResourceID})
			if len(tt.want) == 0 {
				if err != nil {
					t.Errorf("%v", err)
				}
				return
			}
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if text := err.Error(); strings.Contains(text, canary) ||
				strings.Contains(text, "\n") ||
				!strings.HasPrefix(text, "cannot read the cluster: ") {
				t.Errorf("not one clear sentence without secrets: %q", text)
			}
		})
	}
}

func readCluster(t *testing.T, c config.Azure) error {
	t.Helper()
	credential, err := Manager(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	options := ARM(c, nil)
	options.Retry = policy.RetryOptions{MaxRetries: 2, RetryDelay: time.Millisecond,
		MaxRetryDelay: 2 * time.Millisecond}
	id := config.TargetCluster{ResourceID: c.TargetCluster.ResourceID}
	sub, group, name := id.ID()
	client, err := armcontainerservice.NewManagedClustersClient(sub, credential, options)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Get(t.Context(), group, name, nil)
	return err
}

// An issuer that finds this machine's clock wrong has not refused the credential.
func TestRefused(t *testing.T) {
	for said, want := range map[string]bool{
		"AADSTS700027: The certificate is not registered":                    true,
		"AADSTS700024: Client assertion is not within its valid time range":  false,
		"AADSTS7000222: The provided client secret keys for app are expired": true,
	} {
		body := `{"error":"invalid_client","error_description":"` + said + `"}`
		response := &http.Response{StatusCode: http.StatusUnauthorized,
			Request: httptest.NewRequest(http.MethodPost, "/token", nil),
			Body:    io.NopCloser(strings.NewReader(body))}
		err := &azidentity.AuthenticationFailedError{RawResponse: response}
		if got := Refused(err); got != want {
			t.Errorf("%s: refused: %v, want %v", said, got, want)
		}
	}
}

// By default the command deletes the credentials of all other machines of the application.
func TestResetKeepsOtherCredentials(t *testing.T) {
	for code, o := range objections {
		if before, after, ok := strings.Cut(o.remedy, "credential reset "); ok != strings.Contains(
			o.remedy, "reset") || ok && !strings.HasPrefix(after, "--append --id CLIENT-ID") {
			t.Errorf("%d: %s%s", code, before, after)
		}
	}
}
