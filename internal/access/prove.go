package access

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/identity"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// Prove makes sure that a changed credential works before anything relies on it: one fresh token
// from the issuer, past every cache, and one call of the API server with it. Whoever is forbidden
// something has been recognised.
func Prove(
	ctx context.Context, m Machine, c config.Config, at transition.Cluster,
) error {
	if c.Azure.BootstrapToken != nil {
		return nil
	}
	token, err := Fresh(ctx, c)
	if identity.Refused(err) {
		return &transition.Outcome{Kind: transition.Refused, Err: err}
	}
	if err != nil {
		return err
	}
	client, err := kube.FromToken(at.Server, []byte(at.CA), token.Value, m.Options(c))
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

// SameIdentity reports whether two configurations authenticate as the same identity with the same
// secret. One that cannot be read is like no other.
func SameIdentity(a, b config.Config) bool {
	one, err1 := identity.Key(a.Azure)
	two, err2 := identity.Key(b.Azure)
	return errors.Join(err1, err2) == nil && one == two && a.Azure.AuthMode() == b.Azure.AuthMode()
}
