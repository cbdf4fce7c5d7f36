package change

import (
	"context"
	"errors"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/aks"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/identity"
)

// askManagers asks Azure about the cluster as whoever may, and returns the first answer.
func askManagers[T any](
	ctx context.Context, h *Home, c config.Config, ask func(context.Context, aks.Client) (T, error),
) (T, error) {
	var none T
	credentials, err := managers(ctx, h, c)
	if err != nil {
		return none, err
	}
	var errs []error
	for _, credential := range credentials {
		answer, err := ask(ctx, aks.Client{
			Target: c.Azure.TargetCluster, Credential: credential,
			Options: identity.ARM(c.Azure, c.ProxyFunc()),
		})
		if err == nil {
			return answer, nil
		}
		errs = append(errs, err)
	}
	return none, errors.Join(errs...)
}

// withAdmin adds the administrator's kubeconfig to the secrets of a generation that wants it: the
// one that the node has already, else what Azure gives to whom a configuration names.
func withAdmin(
	ctx context.Context, h *Home, asking config.Config, to *generation.Generation,
) error {
	if !to.Config.Node.AdminKubeconfig {
		return nil
	}
	secrets := h.Saved.Secrets[to.ID]
	if secrets.AdminKubeconfig = inspect.Admin(h.Node); secrets.AdminKubeconfig == "" {
		text, err := askManagers(ctx, h, asking,
			func(ctx context.Context, c aks.Client) (config.Secret, error) { return c.AdminKubeconfig(ctx) })
		if err != nil {
			return err
		}
		secrets.AdminKubeconfig = text
	}
	h.Saved.Secrets[to.ID] = secrets
	return nil
}
