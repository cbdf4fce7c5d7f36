package identity

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/Azure/AKSFlexNode/internal/config"
)

// loginLimit is how long a person may take to log in: a device code expires after 15 minutes.
const loginLimit = 20 * time.Minute

// Login finds the credential for requests to Resource Manager: the configured service principal,
// else the login of the Azure CLI.
type Login struct {
	// User runs a program as the user who called sudo at the terminal, whose login of the Azure CLI is
	// used first; nil where only root's own is.
	User func(ctx context.Context, limit time.Duration, argv ...string) ([]byte, error)
	// Terminal runs a program that talks to the person at the terminal; nil where there is none.
	Terminal func(ctx context.Context, limit time.Duration, argv ...string) error
	// Note shows what the person at the terminal is asked for.
	Note func(format string, args ...any)
}

// Manager returns the credential. A service principal whose secret was erased is not used.
func (l Login) Manager(c config.Azure, proxy Proxy) (azcore.TokenCredential, error) {
	if c.ArcEnabled() && !c.Onboards() {
		c.ServicePrincipal = nil
	}
	own, err := Manager(c, proxy)
	if err != nil || l.User == nil || c.ServicePrincipal != nil || c.AuthMode() != config.AuthArc {
		return own, err
	}
	return First{UserCLI{Tenant: c.TenantID, Run: l.User}, own}, nil
}

// Ensure returns an error unless there is a valid login, where the Azure CLI's is used. At a
// terminal the person is asked to log in. The error says what doing the login is needed for.
func (l Login) Ensure(ctx context.Context, c config.Azure, proxy Proxy, doing string) error {
	if c.Onboards() {
		return nil
	}
	err := l.valid(ctx, c, proxy)
	if err == nil {
		return nil
	}
	if l.Terminal == nil {
		return fmt.Errorf("cannot %s: there is no valid login of the Azure CLI for root, and no "+
			"terminal to make one at; %s: %w", doing, l.remedy(c), err)
	}
	l.Note("there is no valid login of the Azure CLI; logging in")
	err = l.Terminal(ctx, loginLimit, "az", "login", "--use-device-code", "--tenant", c.TenantID,
		"--output", "none")
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot %s: the Azure CLI (az) is not installed; install it, or configure "+
			"azure.servicePrincipal", doing)
	}
	if err == nil {
		err = l.valid(ctx, c, proxy)
	}
	if err != nil {
		return fmt.Errorf("cannot %s: the login did not succeed; %s: %w", doing, l.remedy(c), err)
	}
	return nil
}

// valid asks for a token for Resource Manager.
func (l Login) valid(ctx context.Context, c config.Azure, proxy Proxy) error {
	credential, err := l.Manager(c, proxy)
	if err == nil {
		scopes := []string{c.ResourceManagerEndpoint + "/.default"}
		_, err = credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: scopes})
	}
	return err
}

// remedy says how a person makes a login that enrols the machine. The service has root's.
func (l Login) remedy(c config.Azure) string {
	sudo := "sudo "
	if l.User != nil {
		sudo = ""
	}
	return fmt.Sprintf("log in with `%saz login --use-device-code --tenant %s`, or configure "+
		"azure.servicePrincipal", sudo, c.TenantID)
}
