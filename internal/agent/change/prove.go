package change

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/identity"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// prove makes sure that a changed credential works before anything relies on it: one fresh token
// from the issuer, past every cache, and one call of the API server with it. Whoever is forbidden
// something has been recognised.
func prove(ctx context.Context, h *Home, c config.Config, at inspect.Cluster) error {
	if c.Azure.BootstrapToken != nil {
		return nil
	}
	token, err := inspect.FreshToken(ctx, c)
	if identity.Refused(err) {
		return &transition.Outcome{Kind: transition.Refused, Err: err}
	}
	if err != nil {
		return err
	}
	client, err := kube.FromToken(at.Server, []byte(at.CA), token.Value, inspect.Options(h.Node.Env,
		c))
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err = client.WhoAmI(ctx); errors.Is(err, kube.ErrUnauthorized) {
		return &transition.Outcome{Kind: transition.Refused, Err: fmt.Errorf("cannot use the "+
			"configured identity: the API server does not accept its token (401); check "+
			"azure.tenantId and %s",
			strings.TrimPrefix(string(c.Azure.AuthMode()), "azure."))}
	}
	return err
}
