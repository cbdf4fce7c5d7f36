package lab

import (
	"bytes"
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

// ProviderBench measures the provider with so many nodes stored.
type ProviderBench struct {
	// Profiles is a directory in which profiles of the provider's memory are kept, "" for none.
	Profiles string

	lab    *Lab
	tls    *tls.Config
	issuer benchIssuer
	// cluster returns the cluster of a node.
	cluster func(n int) string
	kube    []string
	// stored is the number of nodes; etags are the ETags that their polls show.
	stored   int
	etags    []string
	machines []*benchMachine
}

// The polls of a fleet: so many connections that are flooded, so many that are open, and the rate
// of 100,000 nodes.
const (
	pollers   = 64
	connected = 10_000
	fleetRate = 3400
	callers   = 50
)

// bareURL is where the handler that only answers 304 is; a process of its own, as the others are.
const bareURL = "https://" + HostIP + ":8499"

// NewProviderBench prepares the comparison: who signs the agents' tokens, the ConfigMap, the bare
// handler.
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

// allowConfigMap lets the callers read one ConfigMap without the webhook being asked.
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

// node is the resource of a node.
func (b *ProviderBench) node(n int) string {
	return b.cluster(n) + "/flexNodeConfig/bench-" + fmt.Sprintf("%06d", n)
}

func (b *ProviderBench) url(n int) string { return b.urlAt(ReplicaURL(0), n) }

func (b *ProviderBench) urlAt(server string, n int) string {
	return server + b.node(n) + "?api-version=" + ProviderAPI
}

// benchBody returns the body of a PUT for a node at a site. Its agent has an identity of its own.
// It is written as text, because encoding would take time from the server that is measured.
func benchBody(n int, site string) []byte {
	return fmt.Appendf(nil, `{"properties":{"continuousMonitoring":true,`+
		`"azureAuth":{"method":"managedIdentity","managedIdentity":{"clientId":%q}},`+
		`"kubernetesAuth":{"useAzureAuth":true},`+
		`"nodeConfig":{"maxPods":50,"labels":{"environment":"prod","site":%q}}}}`,
		benchIdentity(n), site)
}

// Fill stores nodes through the API until there are so many.
func (b *ProviderBench) Fill(ctx context.Context, nodes int) error {
	who, err := b.lab.Azure()
	if err != nil {
		return err
	}
	token, err := b.lab.TokenAt(ctx, who.Operator, ProviderURL)
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

// add stores a node, and has its machine register a key with a token of the node's identity.
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

// put writes a node, and returns its ETag and uid.
func put(
	ctx context.Context, client *http.Client, url, token string, body []byte,
) (etag, uid string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, url, bytes.NewReader(body))
	if err != nil {
		return "", "", err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	response, err := client.Do(r)
	if err != nil {
		return "", "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
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

// polls are those of the stored nodes, unchanged.
func (b *ProviderBench) polls() load.Target {
	return load.Target{TLS: b.tls, Status: http.StatusNotModified,
		Request: func(ctx context.Context, n int) (*http.Request, error) {
			return b.poll(ctx, b.shuffled(n))
		}}
}

// shuffled has nodes not be asked for in the order they are stored in.
func (b *ProviderBench) shuffled(n int) int { return n * 7919 % b.stored }

// poll is a poll of an agent.
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

// configMaps returns reads of a ConfigMap that holds the answer to a node's poll.
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
				r.Header.Set("If-None-Match", `"1"`) // which it does not know
				r.Header.Set("Authorization", "Bearer "+b.kube[n%callers])
			}
			return r, err
		}}, nil
}

// bare asks a handler that does nothing but answer what the provider is asked.
func (b *ProviderBench) bare() load.Target {
	return load.Target{TLS: b.tls, Status: http.StatusNotModified,
		Request: func(ctx context.Context, n int) (*http.Request, error) {
			return b.pollAt(ctx, bareURL, b.shuffled(n))
		}}
}

// ServeBare is the bare handler, until ctx ends.
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

// Rates are answers in a second.
type Rates struct{ Provider, APIServer, Bare float64 }

// Compare floods provider, API server and bare handler in turn, and returns the medians of the
// rounds.
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

// Puts floods the provider with PUTs that change stored nodes, and returns the median of the
// rounds, in a second. What polls show is not so any more after that.
func (b *ProviderBench) Puts(ctx context.Context, rounds int) (float64, error) {
	who, err := b.lab.Azure()
	if err != nil {
		return 0, err
	}
	token, err := b.lab.TokenAt(ctx, who.Operator, ProviderURL)
	if err != nil {
		return 0, err
	}
	site := 0
	target := load.Target{TLS: b.tls, Status: http.StatusOK,
		Request: func(ctx context.Context, n int) (*http.Request, error) {
			at := b.shuffled(n)
			r, err := http.NewRequestWithContext(ctx, http.MethodPut, b.url(at),
				bytes.NewReader(benchBody(at, fmt.Sprintf("site-%d-%d", site, n))))
			if err == nil {
				r.Header.Set("Authorization", "Bearer "+token)
				r.Header.Set("Content-Type", "application/json")
			}
			return r, err
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

// Stampede has 10,000 agents come at once for their whole configuration.
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

// Restart stops the provider and returns how long it takes from its start until it is ready.
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
