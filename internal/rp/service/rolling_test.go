package service

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/Azure/AKSFlexNode/api/flexnode/sealed"
	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/front"
	"github.com/Azure/AKSFlexNode/internal/rp/rptest/kubetest"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// load sends the requests of a fleet until it is stopped; all must succeed as without a restart.
type load struct {
	*fleet
	ended   atomic.Bool
	running sync.WaitGroup
	polls   atomic.Int64
	others  atomic.Int64
	changed atomic.Int64
	urls    sync.Map // configuration URLs of the nodes, for joining machines
}

const (
	agents  = 12
	joiners = 3
)

func agentID(i int) string { return fmt.Sprintf("aaaaaaaa-0000-0000-0000-%012d", i) }

// agentNode returns the body of a node that joins with its identity.
func agentNode(i int, label string) string {
	return `{"properties":{"continuousMonitoring":true,"kubernetesAuth":{"useAzureAuth":true},
		"azureAuth":{"method":"servicePrincipal","servicePrincipal":{"clientId":"` + agentID(i) +
		`","clientSecret":"secret-` + fmt.Sprint(i) + `"}},
		"nodeConfig":{"labels":{"at":"` + label + `"}}}}`
}

func startLoad(f *fleet) *load {
	f.t.Helper()
	l := &load{fleet: f}
	ops := f.caller("operator", false)
	for i := range agents {
		f.must(ops, 201, "PUT", nodeURL(fmt.Sprint("agent-", i)), agentNode(i, "first"))
	}
	for i := range joiners {
		name := fmt.Sprint("joiner-", i)
		text := f.must(ops, 201, "PUT", nodeURL(name)+"&configUrl=true", withToken)
		l.urls.Store(name, path(shownNode(f.t, text).Properties.ConfigURL))
		l.running.Go(func() { l.read(f.caller("stranger", i%2 == 0), name) })
	}
	for i := range agents {
		l.running.Go(func() { l.poll(f.caller(agentID(i), i%2 == 0), i) })
	}
	l.running.Go(func() { l.write(f.caller("operator", true)) })
	l.running.Go(func() { l.refresh(f.caller(agentID(0), false)) })
	return l
}

// end stops the load, and logs the number of requests.
func (l *load) end() {
	l.t.Helper()
	l.ended.Store(true)
	l.running.Wait()
	l.t.Logf("%d polls, %d of them changed; %d other requests", l.polls.Load(), l.changed.Load(),
		l.others.Load())
	if l.polls.Load() < 100 || l.changed.Load() < agents || l.others.Load() < 30 {
		l.t.Error("there was next to no load")
	}
}

// got sends a request, and returns false if the answer is not one of the valid ones.
func (l *load) got(
	c caller, method, url, body string, right []int, headers ...string,
) (etag, text string, ok bool) {
	response, text, err := c.ask(method, url, body, headers...)
	if err != nil {
		l.t.Errorf("%s %.60s: %v", method, url, errors.Unwrap(err))
		return "", "", false
	}
	if ok = slices.Contains(right, response.StatusCode); !ok {
		l.t.Errorf("%s %s: %d %.300s", method, url, response.StatusCode, text)
	}
	return response.Header.Get("ETag"), text, ok
}

// poll acts as an agent: every second one waits for changes, every third closes its connections.
func (l *load) poll(c caller, i int) {
	url, etag := nodeURL(fmt.Sprint("agent-", i)), `"none"`
	for !l.ended.Load() {
		headers := []string{"If-None-Match: " + etag}
		if i%2 == 0 {
			headers = append(headers, "Prefer: wait=1")
		}
		next, text, ok := l.got(c, "GET", url, "", []int{200, 304}, headers...)
		if !ok {
			return
		}
		if l.polls.Add(1); text != "" {
			l.changed.Add(1)
		}
		if etag = next; i%3 == 0 {
			c.CloseIdleConnections()
		}
	}
}

// read acts as a machine that fetches its configuration.
func (l *load) read(c caller, name string) {
	for !l.ended.Load() {
		url, _ := l.urls.Load(name)
		if _, _, ok := l.got(c, "GET", url.(string), "", []int{200}); !ok {
			return
		}
		l.others.Add(1)
	}
}

// write acts as an owner who changes one node after the other.
func (l *load) write(c caller) {
	for n := 0; !l.ended.Load(); n++ {
		i := n % agents
		url := nodeURL(fmt.Sprint("agent-", i))
		if _, _, ok := l.got(c, "PUT", url, agentNode(i, fmt.Sprint("v", n)), []int{200}); !ok {
			return
		}
		l.others.Add(1)
	}
}

// refresh acts as a node that fetches its secrets.
func (l *load) refresh(c caller) {
	key := must(sealed.NewKey())
	body := string(must(json.Marshal(api.Refresh{PublicKey: key.Public()})))
	for !l.ended.Load() {
		_, text, ok := l.got(c, "POST", nodeURL("agent-0", "/refreshCredentials"), body, []int{200})
		if !ok {
			return
		}
		l.others.Add(1)
		if !strings.Contains(text, "ciphertext") {
			l.t.Errorf("%s", text)
			return
		}
	}
}

// listURLs gives the machines the present URLs.
func (l *load) listURLs() {
	l.t.Helper()
	ops := l.caller("operator", false)
	for i := range joiners {
		name := fmt.Sprint("joiner-", i)
		var u api.ConfigURL
		text := l.must(ops, 200, "POST", nodeURL(name, "/listConfigUrl"), "{}")
		must(0, json.Unmarshal([]byte(text), &u))
		l.urls.Store(name, path(u.ConfigURL))
	}
}

// rounds returns the number of repetitions in a campaign.
func rounds() int {
	if os.Getenv("LONG") != "" {
		return 10
	}
	return 1
}

// Restarts of one replica after the other fail no poll, no configuration, no change.
func TestRollingRestart(t *testing.T) {
	f := newFleet(t)
	l := startLoad(f)
	for range rounds() {
		f.restartAll()
	}
	l.end()
}

// The key is replaced as `flexnode-rp keys` documents: everything stays readable, and all URLs
// work.
func TestKeyRotation(t *testing.T) {
	f := newFleet(t)
	l := startLoad(f)
	file := f.settings.KeysFile
	for range rounds() {
		must(seal.Add(file, seal.RootFile(file), time.Now()))
		f.restartAll()
		ring := must(seal.Promote(file))
		f.restartAll()
		st := store.New(f.memory.Another())
		n := must(credential.Rewrap(context.Background(), st, ring))
		equal(t, "nothing was sealed with the old key", n == 0, false)
		l.listURLs() // a day later all that the old key has signed have ended
		must(seal.Drop(file, must(credential.Boxes(context.Background(), st))))
		f.restartAll()
	}
	l.end()
}

const replicas = 3

// fleet is a set of replicas on one store behind a load balancer that follows /readyz.
type fleet struct {
	t        *testing.T
	memory   *storetest.Memory
	settings Settings
	cluster  *fakeCluster
	signer   *rsa.PrivateKey
	trust    *tls.Config
	address  [replicas]string
	stop     [replicas]func()
	ready    [replicas]atomic.Bool
	turn     atomic.Int64
	over     atomic.Bool
	balancer sync.WaitGroup
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, memory: storetest.NewMemory(), cluster: &fakeCluster{kubetest.New("factory")}}
	dir := t.TempDir()
	f.signer = must(rsa.GenerateKey(rand.Reader, 2048))
	issuer := httptest.NewTLSServer(http.HandlerFunc(f.showKeys))
	t.Cleanup(issuer.Close)
	listen := pair(t, dir, "provider")
	f.trust = &tls.Config{RootCAs: must(readPool(listen.CertFile))}
	f.settings = Settings{
		Listen: &listen, PublicURL: publicURL, Installation: "here", TenantID: tenant,
		KeysFile: keysFile(t, dir), Polls: defaultPolls,
		Limits: fair.Limits{Connections: fair.DefaultLimits().Connections},
		Authentication: Authentication{Audiences: []string{"a"}, Issuers: []front.Issuer{
			{URL: "https://sts/", TenantID: tenant, KeysURL: issuer.URL}}},
		CAFile:          write(t, dir, "ca.pem", encode("CERTIFICATE", issuer.Certificate().Raw)),
		RoleAssignments: front.Assignments{{PrincipalID: "operator", Scope: "/", Actions: []string{"*"}}},
	}
	for i := range replicas {
		f.address[i] = free(t)
		f.start(i)
	}
	t.Cleanup(func() {
		f.over.Store(true)
		f.balancer.Wait()
		for i := range replicas {
			f.stop[i]()
		}
	})
	f.balance()
	f.populate()
	return f
}

func (f *fleet) showKeys(w http.ResponseWriter, _ *http.Request) {
	b64 := base64.RawURLEncoding.EncodeToString
	fmt.Fprintf(w, `{"keys":[{"kty":"RSA","use":"sig","kid":"one","n":%q,"e":%q}]}`,
		b64(f.signer.N.Bytes()), b64(big.NewInt(int64(f.signer.E)).Bytes()))
}

// token returns the token of an application, or of the operator.
func (f *fleet) token(who string) string {
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{
		"iss": "https://sts/", "aud": "a", "tid": tenant, "oid": who, "appid": who, "idtyp": "app",
		"iat": time.Now().Unix(), "nbf": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()})
	token.Header["kid"] = "one"
	return must(token.SignedString(f.signer))
}

// noticed is the time between the load balancer's checks of the replicas.
const noticed = 20 * time.Millisecond

// drain waits until the load balancer has noticed that a replica drains.
func (f *fleet) drain(i int) {
	for f.ready[i].Load() && !f.over.Load() {
		time.Sleep(noticed)
	}
	time.Sleep(5 * noticed) // requests already routed there have arrived
}

// start starts a replica like the program, and returns when it is ready.
func (f *fleet) start(i int) {
	f.t.Helper()
	settings := f.settings
	listen := *settings.Listen
	listen.Address, settings.Listen = f.address[i], &listen
	s := newService(settings, All, f.memory.Another())
	s.drain = func() { f.drain(i) }
	ctx, cancel := context.WithCancel(context.Background())
	s.begin(ctx)
	s.clusters.Source, s.clusters.Dial = f.cluster, f.cluster.dial
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx) }()
	f.stop[i] = func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Errorf("the end of a replica: %v", err)
		}
	}
	for !f.isReady(i) {
		time.Sleep(5 * time.Millisecond)
	}
}

func (f *fleet) restartAll() {
	for i := range replicas {
		f.stop[i]()
		f.start(i)
	}
}

// isReady reports whether a replica is ready, on a connection of its own.
func (f *fleet) isReady(i int) bool {
	transport := &http.Transport{TLSClientConfig: f.trust.Clone(), DisableKeepAlives: true}
	client := http.Client{Transport: transport, Timeout: 5 * time.Second}
	response, err := client.Get("https://" + f.address[i] + "/readyz")
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// balance makes the load balancer follow /readyz until the test ends.
func (f *fleet) balance() {
	look := func() {
		for i := range replicas {
			f.ready[i].Store(f.isReady(i))
		}
	}
	look()
	f.balancer.Go(func() {
		for !f.over.Load() {
			time.Sleep(noticed)
			look()
		}
	})
}

// dial opens a new connection to a ready replica, in turn.
func (f *fleet) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	for range replicas {
		i := int(f.turn.Add(1) % replicas)
		if f.ready[i].Load() {
			return (&net.Dialer{}).DialContext(ctx, network, f.address[i])
		}
	}
	return nil, fmt.Errorf("no replica is ready")
}

// caller is a client with connections of its own.
type caller struct {
	*http.Client
	token string
}

func (f *fleet) caller(who string, http2 bool) caller {
	transport := &http.Transport{DialContext: f.dial, TLSClientConfig: f.trust.Clone(),
		ForceAttemptHTTP2: http2}
	f.t.Cleanup(transport.CloseIdleConnections)
	return caller{&http.Client{Transport: transport, Timeout: time.Minute}, f.token(who)}
}

// ask sends a request and returns its answer with the body read; a header is "Name: value".
func (c caller) ask(method, url, body string, headers ...string) (*http.Response, string, error) {
	r, err := http.NewRequest(method, "https://127.0.0.1:1"+url, strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+c.token)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	response, err := c.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response, string(text), err
}

// must is ask with a check of the status.
func (f *fleet) must(c caller, status int, method, url, body string) string {
	f.t.Helper()
	response, text, err := c.ask(method, url, body)
	if err != nil || response.StatusCode != status {
		f.t.Fatalf("%s %s: %v %v %s", method, url, response, err, text)
	}
	return text
}

// populate registers the cluster.
func (f *fleet) populate() {
	f.t.Helper()
	ops := f.caller("operator", false)
	f.must(ops, 200, "POST", "/subscriptions/"+subscription+
		"/providers/Microsoft.ContainerService/register?api-version=2021-04-01", "")
	f.must(ops, 201, "PUT", clusterID+versionQuery, `{"location":"westeurope","properties":{}}`)
	for !strings.Contains(f.must(ops, 200, "GET", clusterID+versionQuery, ""), `"Succeeded"`) {
		time.Sleep(20 * time.Millisecond)
	}
}
