package lab

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
)

// The tenant has the tenth cluster in its own subscription, with the default quotas and, while it
// is measured, the default rate limits.
const (
	tenantSubscription = "00000000-0000-0000-0000-000000000009"
	tenantCallers      = 8
)

func tenantNode(n int) string {
	return fmt.Sprintf("%s/flexNodeConfig/tenant-%05d", neighbourID(neighbours-1), n)
}

// tenantBody returns a node's largest body, or a small one padded to the same length.
func tenantBody(n int, large bool, change string) []byte {
	var labels strings.Builder
	value := fmt.Sprintf("%s-%d", change, n)
	value = strings.Repeat("0", 63-len(value)) + value
	for i := range 62 {
		fmt.Fprintf(&labels, `,"example.com/label-%02d-%s":%q`, i, strings.Repeat("x", 40), value)
	}
	body := func(more string) string {
		return fmt.Sprintf(`{"properties":{"nodeConfig":{"maxPods":50,"labels":{"site":%q%s}}}}`,
			change, more)
	}
	whole := body(labels.String())
	if large {
		return []byte(whole)
	}
	small := body("")
	return []byte(small + strings.Repeat(" ", len(whole)-len(small)))
}

// admitTenant registers the tenant's subscription and assigns its roles.
func (n *Neighbours) admitTenant(ctx context.Context) error {
	who, err := n.lab.Azure()
	if err != nil {
		return err
	}
	scope := "/subscriptions/" + tenantSubscription
	if _, err := n.lab.AzureControl(ctx, http.MethodPut, "/subscriptions",
		azuresim.Subscription{ID: tenantSubscription, Name: "tenant"}); err != nil {
		return err
	}
	for principal, role := range map[string]string{
		who.Unprivileged.ObjectID: roleOwner, who.Operator.ObjectID: roleOwner,
		who.Provider.ObjectID: roleReader,
	} {
		if _, err := n.lab.AzureControl(ctx, http.MethodPut, "/assignments", azuresim.Assignment{
			Scope: scope, RoleID: role, PrincipalID: principal}); err != nil {
			return err
		}
	}
	status, text, err := n.lab.ARM(ctx, http.MethodPost, AzureURL,
		scope+"/providers/Microsoft.ContainerService/register", "2021-04-01", nil)
	if err != nil || status != http.StatusOK {
		return errors.Join(err, fmt.Errorf("cannot register a subscription: %d %s", status, text))
	}
	n.tenantToken, err = n.lab.TokenAt(ctx, who.Unprivileged, ProviderURL)
	return err
}

// limitTenant restarts the provider with the default rate limits of the tenant, or without limits.
func (n *Neighbours) limitTenant(ctx context.Context, limited bool) error {
	who, err := n.lab.Azure()
	if err != nil {
		return err
	}
	err = n.lab.changeSettings(func(settings object) {
		limits, _ := settings["limits"].(map[string]any)
		exceptions, _ := limits["exceptions"].(map[string]any)
		for _, id := range []string{tenantSubscription, who.Unprivileged.ObjectID} {
			if limited {
				delete(exceptions, id)
			} else {
				exceptions[id] = asMuchAsCanBeSent
			}
		}
	})
	if err != nil {
		return err
	}
	_, err = n.Restart(ctx)
	return err
}

// fillQuota stores nodes of the tenant until the provider refuses one.
func (n *Neighbours) fillQuota(ctx context.Context) error {
	refused, err := n.tenantPuts(ctx, 1<<20, func(at int) []byte { return tenantBody(at, true, "0") })
	if err == nil && refused == 1<<20 {
		err = errors.New("the provider refuses no node of the tenant")
	}
	n.tenantNodes = refused
	return err
}

// tenantPuts PUTs the tenant's first nodes once and returns the number of the first refused one.
func (n *Neighbours) tenantPuts(
	ctx context.Context, nodes int, body func(n int) []byte,
) (refused int, err error) {
	client := n.tenantClient()
	defer client.CloseIdleConnections()
	var next, first atomic.Int64
	first.Store(int64(nodes))
	errs := make([]error, tenantCallers)
	var wg sync.WaitGroup
	for worker := range errs {
		wg.Go(func() {
			for {
				at := next.Add(1) - 1
				if at >= first.Load() {
					return
				}
				response, text, err := n.tenantPut(ctx, client, int(at), body(int(at)))
				switch {
				case err == nil && response.StatusCode/100 == 2:
				case err == nil && bytes.Contains(text, []byte("Quota")):
					first.Store(min(first.Load(), at))
				default:
					errs[worker] = cmp.Or(err, fmt.Errorf("the tenant's PUT: %s", text))
					return
				}
			}
		})
	}
	wg.Wait()
	return int(first.Load()), errors.Join(errs...)
}

func (n *Neighbours) tenantClient() *http.Client {
	return &http.Client{Timeout: time.Minute,
		Transport: &http.Transport{TLSClientConfig: n.tls, MaxIdleConnsPerHost: tenantCallers}}
}

func (n *Neighbours) tenantPut(
	ctx context.Context, client *http.Client, at int, body []byte,
) (*http.Response, []byte, error) {
	return request(ctx, client, http.MethodPut,
		ReplicaURL(0)+tenantNode(at)+"?api-version="+ProviderAPI, n.tenantToken, body)
}

// Tenant measures while the tenant continuously PUTs all of its nodes: the largest ones, which use
// up its quota, so that larger and additional nodes are refused, or ordinary ones.
func (n *Neighbours) Tenant(ctx context.Context, during time.Duration, large bool) (Served, error) {
	if err := n.lab.setMode(quietMode, 0); err != nil {
		return Served{}, err
	}
	if err := n.limitTenant(ctx, false); err != nil {
		return Served{}, err
	}
	body := func(at int) []byte { return tenantBody(at, large, "0") }
	if _, err := n.tenantPuts(ctx, n.tenantNodes, body); err != nil {
		return Served{}, err
	}
	if err := n.limitTenant(ctx, true); err != nil {
		return Served{}, err
	}
	return n.serve(ctx, during, func(ctx context.Context) {
		client := n.tenantClient()
		defer client.CloseIdleConnections()
		var all sync.WaitGroup
		for worker := range tenantCallers {
			all.Go(func() {
				for i := worker; ctx.Err() == nil; i += tenantCallers {
					change := fmt.Sprint(i % 1000)
					at := i * 7919 % (n.tenantNodes + n.tenantNodes/10)
					_, _, _ = n.tenantPut(ctx, client, at, tenantBody(at, large, change))
				}
			})
		}
		all.Wait()
	})
}
