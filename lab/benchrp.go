package lab

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/lab/load"
)

// ProviderBench measures the provider with a number of stored nodes.
type ProviderBench struct {
	// Profiles is the directory for profiles of the provider's memory, "" for none.
	Profiles string

	lab    *Lab
	tls    *tls.Config
	issuer benchIssuer
	// cluster returns the cluster of a node.
	cluster func(n int) string
	kube    []string
	// stored is the number of nodes; etags are the ETags that their polls return.
	stored   int
	etags    []string
	machines []*benchMachine
}

// The load of a fleet: connections to flood, open connections, the poll rate of 100,000 nodes, and
// callers of the API server.
const (
	pollers   = 64
	connected = 10_000
	fleetRate = 3400
	callers   = 50
)

// bareURL is the address of a handler that only responds 304, in its own process like the others.
const bareURL = "https://" + HostIP + ":8499"

// NewProviderBench prepares the comparison: the issuer of the agents' tokens, the right to read the
// ConfigMap, and the bare handler.
func (l *Lab) NewProviderBench(ctx context.Context) (*ProviderBench, error) {
	pool, err := l.trusted()
	if err != nil {
		return nil, err
	}
	b := &ProviderBench{lab: l, tls: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13},
		cluster: func(int) string { return ClusterID }}
	who, err := l.Azure()
	if err != nil {
		return nil, err
	}
	if b.issuer, err = newBenchIssuer(who.audience()); err != nil {
		return nil, err
	}
	if err := b.issuer.publish(l.keysFile()); err != nil {
		return nil, err
	}
	for range callers {
		kube, err := l.tokenFor(ctx, who.Node, azuresim.AKSServer)
		if err != nil {
			return nil, err
		}
		b.kube = append(b.kube, kube)
	}
	if err := l.background("bare", l.Self, "bare"); err != nil {
		return nil, err
	}
	if err := l.trustBench(); err != nil {
		return nil, err
	}
	if _, err := b.Restart(ctx); err != nil {
		return nil, err
	}
	return b, b.allowConfigMap(ctx, who.Node.ObjectID)
}

// allowConfigMap lets the callers read ConfigMaps without a call of the webhook.
func (b *ProviderBench) allowConfigMap(ctx context.Context, user string) error {
	_, err := b.lab.apply(ctx, fmt.Sprintf(`apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: bench}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: bench}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: bench}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %s}]
`, user))
	return err
}

// node returns a node's resource id.
func (b *ProviderBench) node(n int) string {
	return b.cluster(n) + "/flexNodeConfig/bench-" + fmt.Sprintf("%06d", n)
}

func (b *ProviderBench) url(n int) string { return b.urlAt(ReplicaURL(0), n) }

func (b *ProviderBench) urlAt(server string, n int) string {
	return server + b.node(n) + "?api-version=" + ProviderAPI
}

// benchBody returns the body of a PUT for a node at a site. Each agent has its own identity. It is
// formatted as text, because encoding would take CPU time from the measured server.
func benchBody(n int, site string) []byte {
	return fmt.Appendf(nil, `{"properties":{"continuousMonitoring":true,`+
		`"azureAuth":{"method":"managedIdentity","managedIdentity":{"clientId":%q}},`+
		`"kubernetesAuth":{"useAzureAuth":true},`+
		`"nodeConfig":{"maxPods":50,"labels":{"environment":"prod","site":%q}}}}`,
		benchIdentity(n), site)
}

// Fill stores nodes through the API up to a total number.
func (b *ProviderBench) Fill(ctx context.Context, nodes int) error {
	token, err := b.lab.operatorToken(ctx, ProviderURL)
	if err != nil {
		return err
	}
	b.etags = append(b.etags, make([]string, nodes-b.stored)...)
	b.machines = append(b.machines, make([]*benchMachine, nodes-b.stored)...)
	var next atomic.Int64
	next.Store(int64(b.stored))
	var wg sync.WaitGroup
	errs := make([]error, pollers)
	client := &http.Client{Timeout: time.Minute,
		Transport: &http.Transport{TLSClientConfig: b.tls, MaxIdleConnsPerHost: pollers}}
	defer client.CloseIdleConnections()
	for worker := range pollers {
		wg.Go(func() {
			for errs[worker] == nil {
				n := int(next.Add(1)) - 1
				if n >= nodes {
					return
				}
				errs[worker] = b.add(ctx, client, token, n)
			}
		})
	}
	wg.Wait()
	b.stored = nodes
	return errors.Join(errs...)
}

// add stores a node and registers a key of its machine with a token of the node's identity.
func (b *ProviderBench) add(ctx context.Context, client *http.Client, token string, n int) error {
	etag, uid, err := put(ctx, client, b.url(n), token, benchBody(n, "factory-7"))
	if err != nil {
		return err
	}
	identity, err := b.issuer.token(n)
	if err != nil {
		return fmt.Errorf("cannot sign the token of an agent: %w", err)
	}
	b.etags[n] = etag
	if b.machines[n], err = newBenchMachine(b.node(n), uid); err != nil {
		return err
	}
	return b.machines[n].register(ctx, client, ReplicaURL(0), identity)
}

// put writes a node and returns its ETag and uid.
func put(
	ctx context.Context, client *http.Client, url, token string, body []byte,
) (etag, uid string, err error) {
	response, text, err := request(ctx, client, http.MethodPut, url, token, body)
	if err == nil && response.StatusCode/100 != 2 {
		err = fmt.Errorf("cannot store a node: %s: %s", response.Status, text)
	}
	if err != nil {
		return "", "", err
	}
	var shown api.FlexNodeConfig
	err = json.Unmarshal(text, &shown)
	return response.Header.Get("ETag"), shown.Properties.ResourceUID, err
}

// polls returns polls of the unchanged stored nodes.
func (b *ProviderBench) polls() load.Target {
	return load.Target{TLS: b.tls, Status: http.StatusNotModified,
		Request: func(ctx context.Context, n int) (*http.Request, error) {
			return b.poll(ctx, b.shuffled(n))
		}}
}

// shuffled returns an index that avoids requests in the order of the store.
func (b *ProviderBench) shuffled(n int) int { return n * 7919 % b.stored }

// poll returns an agent's poll.
func (b *ProviderBench) poll(ctx context.Context, n int) (*http.Request, error) {
	return b.pollAt(ctx, ReplicaURL(0), n)
}

func (b *ProviderBench) pollAt(ctx context.Context, server string, n int) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.urlAt(server, n), nil)
	if err == nil {
		r.Header.Set("If-None-Match", b.etags[n])
		err = b.machines[n].signPoll(r)
	}
	return r, err
}

// configMaps returns reads of a ConfigMap with the same content as a node's poll.
func (b *ProviderBench) configMaps(ctx context.Context) (load.Target, error) {
	r, err := b.poll(ctx, 0)
	if err != nil {
		return load.Target{}, err
	}
	r.Header.Del("If-None-Match")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: b.tls}}
	defer client.CloseIdleConnections()
	response, err := client.Do(r)
	if err != nil {
		return load.Target{}, err
	}
	defer response.Body.Close()
	shown, err := io.ReadAll(response.Body)
	if err != nil {
		return load.Target{}, err
	}
	manifest, err := json.Marshal(object{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": object{"name": "bench", "namespace": "default"},
		"data":     object{"config": string(shown)}})
	if err != nil {
		return load.Target{}, fmt.Errorf("internal error: %w", err)
	}
	if _, err := b.lab.apply(ctx, string(manifest)); err != nil {
		return load.Target{}, err
	}
	return load.Target{TLS: b.tls, Status: http.StatusOK,
		Request: func(ctx context.Context, n int) (*http.Request, error) {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet,
				APIServer+"/api/v1/namespaces/default/configmaps/bench?resourceVersion=0", nil)
			if err == nil {
				r.Header.Set("If-None-Match", `"1"`) // the API server ignores it
				r.Header.Set("Authorization", "Bearer "+b.kube[n%callers])
			}
			return r, err
		}}, nil
}

// bare returns polls for a handler that does nothing but respond.
func (b *ProviderBench) bare() load.Target {
	return load.Target{TLS: b.tls, Status: http.StatusNotModified,
		Request: func(ctx context.Context, n int) (*http.Request, error) {
			return b.pollAt(ctx, bareURL, b.shuffled(n))
		}}
}

// ServeBare serves the bare handler until ctx ends.
func (l *Lab) ServeBare(ctx context.Context) error {
	server := &http.Server{Addr: strings.TrimPrefix(bareURL, "https://"),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == issuerKeys {
				http.ServeFile(w, r, l.keysFile())
				return
			}
			w.Header().Set("ETag", r.Header.Get("If-None-Match"))
			w.WriteHeader(http.StatusNotModified)
		})}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err := server.ListenAndServeTLS(l.path("pki", "server.crt"), l.path("pki", "server.key"))
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Rates are responses per second.
type Rates struct{ Provider, APIServer, Bare float64 }

// Compare floods the provider, the API server and the bare handler in turn, and returns the medians
// of the rounds.
func (b *ProviderBench) Compare(ctx context.Context, rounds int) (Rates, error) {
	const during = 3 * time.Second
	configMaps, err := b.configMaps(ctx)
	if err != nil {
		return Rates{}, err
	}
	var got [3][]float64
	for range rounds {
		for i, target := range []load.Target{b.polls(), configMaps, b.bare()} {
			rate, err := target.Flood(ctx, pollers, during)
			if err != nil {
				return Rates{}, err
			}
			got[i] = append(got[i], rate)
		}
	}
	return Rates{middle(got[0]), middle(got[1]), middle(got[2])}, nil
}

// Puts floods the provider with PUTs that change stored nodes and returns the median rate of the
// rounds, per second. The stored ETags are stale afterwards.
func (b *ProviderBench) Puts(ctx context.Context, rounds int) (float64, error) {
	token, err := b.lab.operatorToken(ctx, ProviderURL)
	if err != nil {
		return 0, err
	}
	site := 0
	target := load.Target{TLS: b.tls, Status: http.StatusOK,
		Request: func(ctx context.Context, n int) (*http.Request, error) {
			at := b.shuffled(n)
			return authorized(ctx, http.MethodPut, b.url(at), token,
				benchBody(at, fmt.Sprintf("site-%d-%d", site, n)))
		}}
	fleet, err := target.Open(ctx, pollers)
	if err != nil {
		return 0, err
	}
	defer fleet.Close()
	var got []float64
	for site = range rounds {
		rate, err := fleet.Flood(ctx, 5*time.Second)
		if err != nil {
			return 0, err
		}
		got = append(got, rate)
	}
	return middle(got), nil
}

func middle(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// Stampede lets up to 10,000 agents fetch their whole configuration at once.
func (b *ProviderBench) Stampede(ctx context.Context) (int, time.Duration, error) {
	whole := b.polls()
	conditional := whole.Request
	whole.Status = http.StatusOK
	whole.Request = func(ctx context.Context, n int) (*http.Request, error) {
		r, err := conditional(ctx, n)
		if err == nil {
			r.Header.Del("If-None-Match")
		}
		return r, err
	}
	return whole.Stampede(ctx, min(10_000, b.stored))
}

// Restart restarts the provider and returns the time from its start until it is ready.
func (b *ProviderBench) Restart(ctx context.Context) (time.Duration, error) {
	pid := b.lab.ProcessID("flexnode-rp-0")
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return 0, fmt.Errorf("cannot stop the provider: %w", err)
	}
	err := until(ctx, time.Minute, "the provider's end", func() error {
		if b.lab.ProcessID("flexnode-rp-0") != 0 {
			return errors.New("it runs")
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	err = b.lab.StartReplica(ctx, 0)
	return time.Since(began), err
}
