package change

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/identity"
)

// manager is the credential that Resource Manager is asked with. A service principal whose secret
// was dropped is none. The login of the Azure CLI is that of whoever has called sudo at this
// terminal, else root's own.
func manager(h *Home, c config.Config) (azcore.TokenCredential, error) {
	if c.Azure.ArcEnabled() && !onboards(c.Azure) {
		c.Azure.ServicePrincipal = nil
	}
	own, err := identity.Manager(c.Azure, c.ProxyFunc())
	if err != nil || h.Agent.Invoker == nil || c.Azure.ServicePrincipal != nil ||
		c.Azure.AuthMode() != config.AuthArc {
		return own, err
	}
	users := identity.UserCLI{
		Tenant: c.Azure.TenantID,
		Run: func(ctx context.Context, limit time.Duration, argv ...string) ([]byte, error) {
			return h.Agent.Machine.RunAs(ctx, limit, *h.Agent.Invoker, argv...)
		},
	}
	return identity.First{users, own}, nil
}

// login is how a person makes a login that onboards. The service has root's.
func login(h *Home, c config.Config) string {
	sudo := "sudo "
	if h.Agent.Invoker != nil {
		sudo = ""
	}
	return fmt.Sprintf("log in with `%saz login --use-device-code --tenant %s`, or configure "+
		"azure.servicePrincipal", sudo, c.Azure.TenantID)
}

// loginLimit is how long a person may take to log in: a device code is good for 15 minutes.
const loginLimit = 20 * time.Minute

// loggedIn makes sure that the Azure CLI, where it is what onboards, has a valid login. At a
// terminal a person is asked to log in.
func loggedIn(ctx context.Context, h *Home, c config.Config, doing string) error {
	if onboards(c.Azure) {
		return nil
	}
	err := validLogin(ctx, h, c)
	if err == nil {
		return nil
	}
	if !h.Agent.Terminal {
		return fmt.Errorf("cannot %s: there is no valid login of the Azure CLI for root, and no "+
			"terminal to make one at; %s: %w", doing, login(h, c), err)
	}
	h.Note("there is no valid login of the Azure CLI; logging in")
	err = h.Agent.Machine.RunOnTerminal(ctx, loginLimit, h.Agent.Invoker, "az", "login",
		"--use-device-code",
		"--tenant", c.Azure.TenantID, "--output", "none")
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot %s: the Azure CLI (az) is not installed; install it, or configure "+
			"azure.servicePrincipal", doing)
	}
	if err == nil {
		err = validLogin(ctx, h, c)
	}
	if err != nil {
		return fmt.Errorf("cannot %s: the login did not succeed; %s: %w", doing, login(h, c), err)
	}
	return nil
}

func validLogin(ctx context.Context, h *Home, c config.Config) error {
	credential, err := manager(h, c)
	if err == nil {
		scopes := []string{c.Azure.ResourceManagerEndpoint + "/.default"}
		_, err = credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: scopes})
	}
	return err
}
