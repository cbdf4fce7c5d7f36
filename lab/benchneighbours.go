package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/lab/load"
)

// Neighbours compares how the nodes of nine clusters are served while the tenth cluster's API
// server is hostile, or its tenant has used up the quota, with how they are served while both send
// as much and behave.
type Neighbours struct {
	*ProviderBench
	// tenantNodes is the number of nodes of max size that fit in the tenant's quota.
	tenantNodes int
	tenantToken string
}

// neighbourNodes is the number of nodes that are polled, and of those that are changed.
const neighbourNodes = 900

// Served holds the results of nine clusters: responses per second, the provider's max memory, and
// the data that the tenth API server sent per second, both in bytes.
type Served struct {
	Polls, Puts float64
	Memory      int64
	Sent        int
}

// NewNeighbours registers the ten clusters and stores the nodes of nine. The lab must run with a
// provider.
func (l *Lab) NewNeighbours(ctx context.Context) (*Neighbours, error) {
	b, err := l.NewProviderBench(ctx)
	if err != nil {
		return nil, err
	}
	n := &Neighbours{ProviderBench: b}
	b.cluster = func(n int) string { return neighbourID(n % (neighbours - 1)) }
	if err := l.setMode(quietMode, 0); err != nil {
		return nil, err
	}
	if err := l.background("neighbours", l.Self, "neighbours"); err != nil {
		return nil, err
	}
	if err := n.bind(); err != nil {
		return nil, err
	}
	if err := n.limitTenant(ctx, false); err != nil {
		return nil, err
	}
	if err := n.admitTenant(ctx); err != nil {
		return nil, err
	}
	for i := range neighbours {
		if err := n.register(ctx, i); err != nil {
			return nil, err
		}
	}
	if err := b.Fill(ctx, 2*neighbourNodes); err != nil {
		return nil, err
	}
	return n, n.fillQuota(ctx)
}

// bind gives the provider a kubeconfig of each cluster for its next start.
func (n *Neighbours) bind() error {
	var bound []any
	for i := range neighbours {
		id := neighbourID(i)
		kubeconfig, err := n.lab.kubeconfigOf(providerUser, neighbourURL(i))
		if err != nil {
			return err
		}
		if err := n.lab.BindKubeconfig(id, kubeconfig); err != nil {
			return err
		}
		bound = append(bound, object{"id": id, "kubeconfig": n.lab.replicaKubeconfig(0, id),
			"local": true})
	}
	return n.lab.changeSettings(func(settings object) {
		clusters, _ := settings["clusters"].([]any)
		settings["clusters"] = append(clusters, bound...)
	})
}

func (n *Neighbours) register(ctx context.Context, i int) error {
	body := object{"location": "lab", "properties": object{
		"kubeconfig": fmt.Sprintf("neighbour-%d", i), "dnsServiceIP": DNSService}}
	err := until(ctx, time.Minute, "the provider", func() error { // behind the load balancer
		status, text, err := n.lab.ARM(ctx, http.MethodPut, ProviderURL, neighbourID(i), ProviderAPI,
			body)
		if err == nil && status/100 != 2 {
			err = fmt.Errorf("cannot register a cluster: %d %s", status, text)
		}
		return err
	})
	if err != nil {
		return err
	}
	return until(ctx, time.Minute, "cluster "+strconv.Itoa(i), func() error {
		_, text, err := n.lab.ARM(ctx, http.MethodGet, ProviderURL, neighbourID(i), ProviderAPI, nil)
		var shown api.ManagedCluster
		if err != nil || json.Unmarshal([]byte(text), &shown) != nil ||
			shown.Properties.ProvisioningState != api.Succeeded {
			return errors.Join(err, fmt.Errorf("it is not registered: %s", text))
		}
		return nil
	})
}

// Hostile measures while the tenth API server is hostile.
func (n *Neighbours) Hostile(ctx context.Context, during time.Duration) (Served, error) {
	if err := n.lab.setMode(hostileMode, 0); err != nil {
		return Served{}, err
	}
	return n.serve(ctx, during, nil)
}

// Loud measures while the tenth API server behaves and sends rate bytes per second.
func (n *Neighbours) Loud(ctx context.Context, during time.Duration, rate int) (Served, error) {
	if err := n.lab.setMode(loudMode, rate); err != nil {
		return Served{}, err
	}
	return n.serve(ctx, during, nil)
}

// turns is the number of floods of each kind in a measurement: each kind of harm should meet both.
const turns = 5

// serve restarts the provider, and with it the tenth cluster's sessions, and floods it with polls
// and PUTs in turns. Meanwhile it runs beside, unless that is nil.
func (n *Neighbours) serve(
	ctx context.Context, during time.Duration, beside func(context.Context),
) (got Served, err error) {
	if _, err := n.Restart(ctx); err != nil {
		return got, err
	}
	token, err := n.lab.operatorToken(ctx, ProviderURL)
	if err != nil {
		return got, err
	}
	sampling, stop := context.WithCancel(ctx)
	peak := make(chan int64)
	go func() { peak <- n.peak(sampling) }()
	if beside != nil {
		go beside(sampling)
	}
	before, began := n.sent(ctx), time.Now()
	for range turns {
		polls, pollErr := n.unchanged().Flood(ctx, pollers, during/(2*turns))
		puts, putErr := n.changes(token).Flood(ctx, pollers, during/(2*turns))
		got.Polls, got.Puts = got.Polls+polls/turns, got.Puts+puts/turns
		err = errors.Join(err, pollErr, putErr)
	}
	stop()
	got.Memory = <-peak
	got.Sent = int(float64(n.sent(ctx)-before) / time.Since(began).Seconds())
	return got, err
}

// unchanged returns polls of the first nodes.
func (n *Neighbours) unchanged() load.Target {
	return load.Target{TLS: n.tls, Status: http.StatusNotModified,
		Request: func(ctx context.Context, i int) (*http.Request, error) {
			return n.poll(ctx, i*7919%neighbourNodes)
		}}
}

// changes returns PUTs of the other nodes.
func (n *Neighbours) changes(token string) load.Target {
	return load.Target{TLS: n.tls, Status: http.StatusOK,
		Request: func(ctx context.Context, i int) (*http.Request, error) {
			at := neighbourNodes + i*7919%neighbourNodes
			return authorized(ctx, http.MethodPut, n.url(at), token,
				benchBody(at, fmt.Sprintf("site-%d", time.Now().UnixNano())))
		}}
}

// peak returns the provider's max memory until ctx ends.
func (n *Neighbours) peak(ctx context.Context) (most int64) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return most
		case <-tick.C:
			if now, err := n.Memory(); err == nil {
				most = max(most, now)
			}
		}
	}
}

// sent returns the number of bytes that the tenth API server has sent.
func (n *Neighbours) sent(ctx context.Context) int {
	client, err := n.lab.HTTPClient()
	if err != nil {
		return 0
	}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, neighbourURL(neighbours-1)+sentPath, nil)
	if err != nil {
		return 0
	}
	response, err := client.Do(r)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	var sent int
	_, _ = fmt.Fscan(response.Body, &sent) // 0 if it cannot be read
	return sent
}
