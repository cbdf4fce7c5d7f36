package access

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/Azure/AKSFlexNode/internal/config"
)

// quiet is a machine of which nothing is asked.
type quiet struct{ Machine }

func (quiet) Note(string, ...any)                     {}
func (quiet) Every(usual time.Duration) time.Duration { return usual }
func (quiet) TrustedFile(string) error                { return nil }

// A user who is gone from the machine has no login, and keeps no other one from being used.
func TestCLIUserWhoIsGone(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // root has no Azure CLI
	a := &Azure{Node: quiet{}}
	azure := config.Azure{
		CLIUser: "no-such-user", TenantID: "11111111-2222-3333-4444-555555555555",
		AuthorityHost: "https://login.example", ResourceManagerEndpoint: "https://arm.example",
	}
	azure.ServicePrincipal = &config.ServicePrincipal{
		TenantID: azure.TenantID, ClientID: azure.TenantID, ClientSecret: "s",
	}
	if got, err := a.managers(context.Background(), config.Config{Azure: azure}); err != nil {
		t.Errorf("a service principal cannot ask: %v", err)
	} else if len(got) != 1 {
		t.Errorf("%d credentials", len(got))
	}
	azure.ServicePrincipal, azure.Arc = nil, &config.Arc{}
	credential, err := a.login(azure).Manager(azure, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = credential.GetToken(context.Background(),
		policy.TokenRequestOptions{Scopes: []string{"s"}})
	if err == nil || !strings.Contains(err.Error(), "cannot use azure.cliUser") {
		t.Errorf("the error is %v", err)
	}
}
