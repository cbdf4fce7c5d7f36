package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// cliLimit bounds one call of the Azure CLI, as azidentity's does; a little more, for a machine
// that is busy with downloads.
const cliLimit = 30 * time.Second

// UserCLI is the login of the Azure CLI of another user than the one who runs this process, which
// azidentity's credential cannot have.
type UserCLI struct {
	// Run runs a program as that user, for limit at longest.
	Run    func(ctx context.Context, limit time.Duration, argv ...string) ([]byte, error)
	Tenant string
}

// GetToken implements azcore.TokenCredential.
func (c UserCLI) GetToken(
	ctx context.Context, o policy.TokenRequestOptions,
) (azcore.AccessToken, error) {
	if len(o.Scopes) != 1 {
		return azcore.AccessToken{}, errors.New("internal error: a token has one scope")
	}
	argv := []string{"az", "account", "get-access-token", "--output", "json",
		"--resource", strings.TrimSuffix(o.Scopes[0], "/.default")}
	if c.Tenant != "" {
		argv = append(argv, "--tenant", c.Tenant)
	}
	out, err := c.Run(ctx, cliLimit, argv...)
	if err != nil {
		return azcore.AccessToken{}, err
	}
	var answer struct {
		Token   string `json:"accessToken"`
		Expires int64  `json:"expires_on"`
		Local   string `json:"expiresOn"` // all that an older CLI says
	}
	if err := json.Unmarshal(out, &answer); err != nil || answer.Token == "" {
		return azcore.AccessToken{}, errors.New("cannot read what the Azure CLI has printed")
	}
	until := time.Unix(answer.Expires, 0)
	if answer.Expires == 0 {
		until, err = time.ParseInLocation("2006-01-02 15:04:05", answer.Local, time.Local)
		if err != nil {
			return azcore.AccessToken{}, fmt.Errorf("cannot tell when the token expires: %w", err)
		}
	}
	return azcore.AccessToken{Token: answer.Token, ExpiresOn: until.UTC()}, nil
}

// First is the first of several logins that is valid.
type First []azcore.TokenCredential

// GetToken implements azcore.TokenCredential.
func (f First) GetToken(
	ctx context.Context, o policy.TokenRequestOptions,
) (azcore.AccessToken, error) {
	var errs []error
	for _, credential := range f {
		token, err := credential.GetToken(ctx, o)
		if err == nil {
			return token, nil
		}
		errs = append(errs, err)
	}
	return azcore.AccessToken{}, errors.Join(errs...)
}
