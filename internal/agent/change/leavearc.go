package change

import (
	"context"
	"fmt"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// leaveArc takes back what the agent did in Azure Arc, as the identity that the user gave: the
// secret that enrolled the machine may have expired. A machine whose resource was deleted gets it
// from the provider, and reports what is left; one given back by hand reports that it has left.
func (l *leaving) leaveArc(ctx context.Context, how transition.Options) error {
	if how.KeepArc {
		return nil
	}
	record, err := access.Record(l.Records())
	if err != nil {
		return err
	}
	as := l.config
	if l.given != nil && (l.given.Azure.ArcEnabled() || l.given.Azure.ServicePrincipal != nil) {
		as = l.given
	}
	isArc := l.config != nil && l.config.Azure.AuthMode() == config.AuthArc
	deleted := how.Deleted != "" && isArc
	if deleted && record.Owes() {
		as = l.withArcSecret(ctx, as)
	}
	err = askAzure(l.Home).Leave(ctx, as)
	byHand := isArc && l.heard && err == nil && record.Owes() && follow.MannerOf(*l.config).Signs
	if !deleted && !byHand {
		return err
	}
	problem := ""
	if err != nil {
		problem = err.Error()
		err = fmt.Errorf("%w%s", err, record.Deletion())
	}
	tell := func(ctx context.Context, q follow.Question) error {
		return follow.LeftArc(ctx, q, problem)
	}
	if told := l.withProvider(ctx, tell); told != nil {
		l.Warn("%v", told)
	}
	return err
}

// withArcSecret adds the secret that has enrolled the machine, which only the provider keeps. It is
// never written here.
func (l *leaving) withArcSecret(ctx context.Context, c *config.Config) *config.Config {
	if c.Azure.ServicePrincipal == nil || c.Azure.Onboards() {
		return c
	}
	credentials := c.Credentials()
	err := l.withProvider(ctx, func(ctx context.Context, q follow.Question) (err error) {
		credentials.ClientSecret, err = follow.ArcSecret(ctx, q)
		return err
	})
	if err != nil {
		l.Warn("%v", err)
		return c
	}
	l.Conceal(credentials.ClientSecret.Reveal())
	with := c.WithCredentials(credentials)
	return &with
}
