package access

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/aks"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// Locator finds out where the API server is. Azure is asked at most once in a run.
type Locator struct {
	Azure *Azure
	// Asked holds Azure's answer; nil when it was not asked.
	Asked *aks.Cluster
	// Again asks Azure although there is a proved address, because that one no longer works.
	Again bool
}

// Locate returns the address: as the configuration says, else as it was proved, else as Azure says.
func (l *Locator) Locate(ctx context.Context, c config.Config) (transition.Cluster, error) {
	given := transition.Cluster{Server: c.Node.Kubelet.ServerURL}
	if text := c.Node.Kubelet.CACertData; text != "" {
		ca, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return given, fmt.Errorf("internal error: caCertData was not validated: %w", err)
		}
		given.CA = string(ca)
	}
	if given.Server != "" && given.CA != "" {
		return given, nil
	}
	found, proved := l.Proved(c)
	if !proved || l.Again {
		said, err := l.Ask(ctx, c)
		if err != nil {
			return given, err
		}
		found = transition.Cluster{Server: said.Server, CA: said.CA}
	}
	return transition.Cluster{
		Server: cmp.Or(given.Server, found.Server), CA: cmp.Or(given.CA, found.CA),
	}, nil
}

// Proved returns where the API server was when this machine last became a node of the same cluster.
func (l *Locator) Proved(c config.Config) (transition.Cluster, bool) {
	live, at := l.Azure.Proved()
	if live == nil || at.Server == "" || at.CA == "" {
		return transition.Cluster{}, false
	}
	was, is := live.Azure.TargetCluster.ResourceID, c.Azure.TargetCluster.ResourceID
	return at, strings.EqualFold(was, is)
}

// Ask returns what Azure says about the cluster.
func (l *Locator) Ask(ctx context.Context, c config.Config) (*aks.Cluster, error) {
	if l.Asked == nil {
		said, err := ask(ctx, l.Azure, c, aks.Client.Cluster)
		if err != nil {
			return nil, err
		}
		l.Asked = &said
	}
	return l.Asked, nil
}
