package change

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/aks"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
)

// Locator finds out where the API server is. Azure is asked at most once in a run.
type Locator struct {
	Home *Home
	// asked is what Azure has said; nil when it was not asked.
	asked *aks.Cluster
	// again asks Azure although there is a proved address, because that one no longer works.
	again bool
}

// Locate returns the address: as the configuration says, else as it was proved, else as Azure says.
func (l *Locator) Locate(ctx context.Context, c config.Config) (inspect.Cluster, error) {
	given := inspect.Cluster{Server: c.Node.Kubelet.ServerURL}
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
	if proved, ok := proved(l, c); ok && !l.again {
		return merge(given, proved), nil
	}
	if l.asked == nil {
		found, err := askAzure(ctx, l.Home, c)
		if err != nil {
			return given, err
		}
		l.asked = &found
	}
	return merge(given, inspect.Cluster{Server: l.asked.Server, CA: l.asked.CA}), nil
}

// proved is where the API server of the same cluster was last.
func proved(l *Locator, c config.Config) (inspect.Cluster, bool) {
	live, b := l.Home.Saved.Live, l.Home.Saved.Bindings
	if live == nil || b.Server == "" || b.CA == "" {
		return inspect.Cluster{}, false
	}
	was, is := live.Config.Azure.TargetCluster.ResourceID, c.Azure.TargetCluster.ResourceID
	same := strings.EqualFold(was, is)
	return inspect.Cluster{Server: b.Server, CA: b.CA}, same
}

// merge fills in what is not given.
func merge(given, found inspect.Cluster) inspect.Cluster {
	if given.Server == "" {
		given.Server = found.Server
	}
	if given.CA == "" {
		given.CA = found.CA
	}
	return given
}

// askAzure asks with each credential that may, and returns the first answer.
func askAzure(ctx context.Context, h *Home, c config.Config) (aks.Cluster, error) {
	return askManagers(ctx, h, c,
		func(ctx context.Context, client aks.Client) (aks.Cluster, error) { return client.Cluster(ctx) })
}

// findAgain finds the API server again when it no longer is where it was proved to be: its name
// does not resolve, or its certificate is of another CA. Then whoever says where it is, is asked
// again: Azure, or the configuration. The target is a change when it is elsewhere, and the same
// cluster.
func findAgain(ctx context.Context, h *Home, t *Target) error {
	if !h.Saved.Joined() || t.moved {
		return nil
	}
	c := t.Input.Config
	fault := kube.Probe(ctx, kube.Target{
		Server: h.Saved.Bindings.Server, CA: []byte(h.Saved.Bindings.CA),
		Options: inspect.Options(h.Node.Env, c),
	})
	if !kube.Rebind(fault) {
		return nil
	}
	t.Locator.again = true
	at, err := t.Locator.Locate(ctx, c)
	if err != nil {
		return fmt.Errorf("the API server is not where it was (%w), and cannot find it again: %w",
			fault, err)
	}
	b := h.Saved.Bindings
	if at.Server == b.Server && saved.Unite(at.CA, b.CA) == saved.Unite(b.CA, "") {
		if !inspect.Located(c) {
			return nil // Azure says nothing new; the gate and the conditions tell what is wrong
		}
		e := health.Evidence{Now: inspect.Now(), Wanted: inspect.Wanted(h.Node.Env, c),
			Probe: health.Tried(fault)}
		return health.Problem(health.Evaluate(health.Preflight(), e))
	}
	t.moved, t.At = true, at
	return sameCluster(ctx, h, c, at)
}

// sameCluster refuses to turn a node into one of another cluster: kubelet's state of the one must
// not meet the other. The same cluster may have another address and another CA: the uid of its
// Service default/kubernetes tells.
func sameCluster(ctx context.Context, h *Home, c config.Config, at inspect.Cluster) error {
	if !h.Saved.Joined() || at == h.Saved.At() {
		return nil
	}
	known := h.Saved.Bindings.ClusterUID
	// The API server may not have the new CA yet.
	either := inspect.Cluster{Server: at.Server, CA: saved.Unite(at.CA, h.Saved.Bindings.CA)}
	uid, err := clusterUID(ctx, h, c, either)
	switch {
	case errors.Is(err, kube.ErrUnauthorized):
		return fmt.Errorf("cannot use %s: it does not accept this node's credential; if it is the same "+
			"cluster, run `aks-flex-node unbootstrap` and join with a new configuration", at.Server)
	case err != nil:
		return fmt.Errorf("cannot tell whether %s is this node's cluster: %w", at.Server, err)
	case known == "" && at.Server != h.Saved.Bindings.Server &&
		!saved.SharesCA(at.CA, h.Saved.Bindings.CA),
		known != "" && uid != known:
		return fmt.Errorf("cannot join %s: this machine is a node of another cluster, %s; "+
			"run `aks-flex-node unbootstrap` first", at.Server, h.Saved.Bindings.Server)
	}
	return nil
}

func clusterUID(ctx context.Context, h *Home, c config.Config, at inspect.Cluster) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	client, err := inspect.KubeletClient(ctx, h.Node, c, at)
	if err != nil {
		return "", err
	}
	defer client.Close()
	return client.ClusterUID(ctx)
}
