package identity

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/Azure/AKSFlexNode/internal/config"
)

// Login provides the credential for Resource Manager: a service principal or an Azure CLI login.
type Login struct {
	Name string // the user whose login the service uses; "" for root, and at a terminal
	// User runs a program as the user whose Azure CLI login is preferred: that of Name, or the one who
	// called sudo at the terminal; nil if only root's own is used.
	User func(ctx context.Context, limit time.Duration, argv ...string) ([]byte, error)
	// Terminal runs a program that talks to the user at the terminal; nil without one.
	Terminal func(ctx context.Context, limit time.Duration, argv ...string) error
	Note     func(format string, args ...any) // shows instructions to the user at the terminal
}

// Manager returns the credential. It ignores a service principal whose secret was erased.
func (l Login) Manager(c config.Azure, proxy Proxy) (azcore.TokenCredential, error) {
	if c.ArcEnabled() && !c.Onboards() {
		c.ServicePrincipal = nil
	}
	own, err := Manager(c, proxy)
	if err != nil || l.User == nil || c.ServicePrincipal != nil || c.AuthMode() != config.AuthArc {
		return own, err
	}
	return azidentity.NewChainedTokenCredential(
		[]azcore.TokenCredential{UserCLI{Tenant: c.TenantID, Run: l.User}, own},
		&azidentity.ChainedTokenCredentialOptions{RetrySources: true})
}

// Ensure returns an error unless the Azure CLI has a valid login, if its login is used. At a
// terminal it asks the user to log in. doing names the purpose of the login in errors.
func (l Login) Ensure(ctx context.Context, c config.Azure, proxy Proxy, doing string) error {
	if c.Onboards() {
		return nil
	}
	err := l.valid(ctx, c, proxy)
	if err == nil {
		return nil
	}
	if l.Terminal == nil {
		return fmt.Errorf("cannot %s: no valid login of the Azure CLI found for %s, and no terminal "+
			"to log in at; %s: %w", doing, cmp.Or(l.Name, "root"), l.remedy(c), err)
	}
	l.Note("no valid login of the Azure CLI found; logging in")
	err = l.Terminal(ctx, 20*time.Minute, // a device code expires after 15 minutes
		"az", "login", "--use-device-code", "--tenant", c.TenantID, "--output", "none")
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot %s: the Azure CLI (az) is not installed; install it, or configure "+
			"azure.servicePrincipal", doing)
	}
	if err == nil {
		err = l.valid(ctx, c, proxy)
	}
	if err != nil {
		return fmt.Errorf("cannot %s: the login failed; %s: %w", doing, l.remedy(c), err)
	}
	return nil
}

func (l Login) valid(ctx context.Context, c config.Azure, proxy Proxy) error {
	credential, err := l.Manager(c, proxy)
	if err == nil {
		scopes := []string{c.ResourceManagerEndpoint + "/.default"}
		_, err = credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: scopes})
	}
	return err
}

// remedy describes how to log in. The service uses root's login unless a user is configured.
func (l Login) remedy(c config.Azure) string {
	sudo, or := "sudo ", ", set azure.cliUser to the user who has logged in"
	switch {
	case l.Name != "":
		sudo, or = "sudo -iu "+l.Name+" ", ""
	case l.User != nil:
		sudo, or = "", ""
	}
	return fmt.Sprintf("log in with `%saz login --use-device-code --tenant %s`%s, or configure "+
		"azure.servicePrincipal", sudo, c.TenantID, or)
}

// UserCLI uses the Azure CLI login of another user, which azidentity's credential cannot. A chain
// tries the next credential after each of its errors.
type UserCLI struct {
	// Run runs a program as that user, for at most limit.
	Run    func(ctx context.Context, limit time.Duration, argv ...string) ([]byte, error)
	Tenant string
}

func (c UserCLI) GetToken(
	ctx context.Context, o policy.TokenRequestOptions,
) (azcore.AccessToken, error) {
	argv := []string{"az", "account", "get-access-token", "--output", "json",
		"--resource", strings.TrimSuffix(o.Scopes[0], "/.default")}
	if c.Tenant != "" {
		argv = append(argv, "--tenant", c.Tenant)
	}
	out, err := c.Run(ctx, 30*time.Second, argv...) // azidentity's limit, and more if it is busy
	if err != nil {
		return azcore.AccessToken{}, azidentity.NewCredentialUnavailableError(err.Error())
	}
	var answer struct {
		Token   string `json:"accessToken"`
		Expires int64  `json:"expires_on"`
		Local   string `json:"expiresOn"` // the only one of an older CLI
	}
	if err := json.Unmarshal(out, &answer); err != nil || answer.Token == "" {
		return azcore.AccessToken{}, azidentity.NewCredentialUnavailableError(
			"cannot read what the Azure CLI has printed")
	}
	until := time.Unix(answer.Expires, 0)
	if answer.Expires == 0 {
		until, err = time.ParseInLocation("2006-01-02 15:04:05", answer.Local, time.Local)
		if err != nil {
			return azcore.AccessToken{}, azidentity.NewCredentialUnavailableError(
				"cannot read when the token expires: " + err.Error())
		}
	}
	return azcore.AccessToken{Token: answer.Token, ExpiresOn: until.UTC()}, nil
}
