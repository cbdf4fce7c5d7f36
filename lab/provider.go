package lab

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/prepare"
	"github.com/Azure/AKSFlexNode/lab/component"
)

// ProviderAPI is the api-version of flexNodeConfig.
const ProviderAPI = "2026-05-01-preview"

// SecondClusterID is a cluster that only the provider has. The settings bind a kubeconfig to it,
// which is missing until BindKubeconfig writes it.
const SecondClusterID = groupID + "/providers/Microsoft.ContainerService/managedClusters/second"

// providerUser is the provider's user name in the cluster.
const providerUser = prepare.ProviderUser

// maxReplicas is the max number of the provider's replicas: azuresim is started with the addresses
// of all.
const maxReplicas = 3

// ProviderURL is the provider's address for machines and callers with tokens: a load balancer in
// front of its replicas.
const ProviderURL = "https://" + HostIP + ":8451"

// ReplicaURL returns the address of a replica without the load balancer; the first is 0.
func ReplicaURL(replica int) string {
	return fmt.Sprintf("https://%s:%d", HostIP, 8454+10*replica)
}

// armURL returns the address of a replica for Resource Manager.
func armURL(replica int) string { return fmt.Sprintf("https://%s:%d", HostIP, 8452+10*replica) }

// ProviderMetrics returns the address of a replica's metrics and health endpoints.
func ProviderMetrics(replica int) string {
	return fmt.Sprintf("http://127.0.0.1:%d", 8453+10*replica)
}

// debugAddress returns the address of a replica's profiles.
func debugAddress(replica int) string { return fmt.Sprintf("127.0.0.1:%d", 8456+10*replica) }

// providerFlags returns azuresim's flags to forward flexNodeConfig.
func (l *Lab) providerFlags() []string {
	flags := []string{"--record=" + l.Exchanges(), "--provider-ca=" + l.CAFile(),
		"--provider-cert=" + l.path("pki", "resource-manager.crt"),
		"--provider-key=" + l.path("pki", "resource-manager.key")}
	for i := range maxReplicas {
		flags = append(flags, "--provider="+armURL(i))
	}
	return flags
}

// Exchanges returns the file that records the exchanges between Resource Manager and the provider.
func (l *Lab) Exchanges() string { return l.path("exchanges.jsonl") }

// startProvider starts the resource provider, and registers the subscription and the cluster.
func (l *Lab) startProvider(ctx context.Context, dirs programs) error {
	if l.Replicas > maxReplicas || l.Replicas > 1 && l.Members == 0 {
		return fmt.Errorf("cannot start %d replicas: the max is %d, and more than one require an "+
			"external etcd (--etcd 3)", l.Replicas, maxReplicas)
	}
	if l.Members > 0 {
		if err := l.startLinks(ctx); err != nil {
			return err
		}
	}
	for i := range l.Members {
		if err := l.startMember(dirs, i); err != nil {
			return err
		}
	}
	for i := range l.Replicas {
		changed, err := l.writeSettings(ctx, i)
		if err != nil {
			return err
		}
		if p, ok := l.running(replicaName(i)); ok && changed { // it has read the old ones
			if err := p.stop(); err != nil {
				return err
			}
		}
		if err := l.StartReplica(ctx, i); err != nil {
			return err
		}
	}
	if err := l.startBalancer(ctx); err != nil {
		return err
	}
	return l.registerCluster(ctx)
}

// startMember starts a member of the provider's etcd.
func (l *Lab) startMember(dirs programs, i int) error {
	return l.background(memberName(i), filepath.Join(dirs[component.Etcd], "etcd"),
		l.memberFlags(i)...)
}

// StopReplica kills a replica, if it is running.
func (l *Lab) StopReplica(i int) error {
	p, ok := l.running(replicaName(i))
	if !ok {
		return nil
	}
	return p.kill()
}

// StartReplica starts a replica and waits until it is ready.
func (l *Lab) StartReplica(ctx context.Context, i int) error {
	name := replicaName(i)
	if err := l.background(name, filepath.Join(filepath.Dir(l.Self), "flexnode-rp"), "serve",
		"--settings", l.replicaPath(i, "settings.json")); err != nil {
		return err
	}
	return until(ctx, time.Minute, name+" (see "+l.path("logs", name+".log")+")", func() error {
		response, err := http.Get(ProviderMetrics(i) + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if text, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK {
			return errors.New(string(text))
		}
		return nil
	})
}

// WaitingPolls returns the number of waiting polls at the first replica.
func (l *Lab) WaitingPolls(ctx context.Context) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, ProviderMetrics(0)+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("cannot read the provider's metrics: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, fmt.Errorf("cannot read the provider's metrics: %w", err)
	}
	_, rest, found := strings.Cut(string(text), "\nflexnode_rp_waiting_polls ")
	if !found {
		return 0, errors.New("the provider's metrics have no number of waiting polls")
	}
	number, _, _ := strings.Cut(rest, "\n")
	return strconv.Atoi(number)
}

// ProcessID returns the process ID of a part of the lab, or 0 if it is not running.
func (l *Lab) ProcessID(name string) int {
	p, ok := l.running(name)
	if !ok {
		return 0
	}
	return p.PID
}

func (l *Lab) replicaPath(i int, elem ...string) string {
	return l.path(append([]string{"rp", fmt.Sprint(i)}, elem...)...)
}

// replicaKubeconfig returns the path of a replica's kubeconfig for a cluster.
func (l *Lab) replicaKubeconfig(i int, cluster string) string {
	return l.replicaPath(i, "kubeconfigs", filepath.Base(cluster))
}

func clientPort(member int) int { return 23810 + 10*member }

// memberFlags returns the flags of a member of the provider's etcd.
func (l *Lab) memberFlags(i int) []string {
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", clientPort(i)),
		fmt.Sprintf("http://127.0.0.1:%d", clientPort(i)+1)
	var initial []string
	for j := range l.Members {
		initial = append(initial, fmt.Sprintf("rp-%d=%s", j, peerURL(j)))
	}
	return []string{
		fmt.Sprintf("--name=rp-%d", i), "--data-dir=" + l.memberDir(i),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peerURL(i),
		"--initial-cluster=" + strings.Join(initial, ","), "--log-level=error",
	}
}

// writeSettings writes a replica's settings, keys, secret and kubeconfig, as an operator would. It
// reports whether the settings have changed.
func (l *Lab) writeSettings(ctx context.Context, i int) (bool, error) {
	if err := os.MkdirAll(l.replicaPath(i, "kubeconfigs"), 0o700); err != nil {
		return false, fmt.Errorf("cannot make the provider's directory: %w", err)
	}
	who, err := l.Azure()
	if err != nil {
		return false, err
	}
	settings, err := l.settings(ctx, i, who)
	if err != nil {
		return false, err
	}
	text, err := json.MarshalIndent(settings, "", "  ")
	if err != nil {
		return false, fmt.Errorf("internal error: %w", err)
	}
	path := l.replicaPath(i, "settings.json")
	if before, err := os.ReadFile(path); err == nil && bytes.Equal(before, text) {
		return false, nil
	}
	if err := l.writeSecrets(ctx, i, who); err != nil {
		return false, err
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return false, fmt.Errorf("cannot write the provider's settings: %w", err)
	}
	return true, nil
}

// writeSecrets writes the files that a replica's settings name, unless they exist: another process
// may have replaced them.
func (l *Lab) writeSecrets(ctx context.Context, i int, who Azure) error {
	kubeconfig, err := os.ReadFile(l.path(providerUser + ".kubeconfig"))
	if err != nil {
		return fmt.Errorf("cannot read the PKI: %w", err)
	}
	for path, content := range map[string][]byte{
		l.replicaKubeconfig(i, ClusterID): kubeconfig,
		l.replicaPath(i, "secret"):        []byte(who.Provider.Secret),
	} {
		if _, err := os.Stat(path); err == nil {
			continue
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return fmt.Errorf("cannot write the provider's settings: %w", err)
		}
	}
	if _, err := os.Stat(l.path("rp", "keys.json")); err == nil {
		return nil
	}
	_, err = run(ctx, filepath.Join(filepath.Dir(l.Self), "flexnode-rp"), "keys", "init",
		l.path("rp", "keys.json"))
	return err
}

// settings returns a replica's settings.
func (l *Lab) settings(ctx context.Context, i int, who Azure) (object, error) {
	settings, err := l.commonSettings(ctx, who, l.CAFile(), l.replicaPath(i, "secret"))
	if err != nil {
		return nil, err
	}
	host := func(url string) string {
		return strings.TrimPrefix(strings.TrimPrefix(url, "https://"), "http://")
	}
	listen := func(url string) object {
		return object{"address": host(url), "certFile": l.path("pki", "server.crt"),
			"keyFile": l.path("pki", "server.key")}
	}
	behind := listen(armURL(i))
	behind["clientCAFile"], behind["clientNames"] = l.CAFile(), []string{"resource-manager.azuresim"}
	// The lab's API servers run on the same machine.
	settings["azure"].(object)["allowLocalClusters"] = true
	maps.Copy(settings, object{
		"listen": listen(ReplicaURL(i)), "armListen": behind,
		"metricsAddress": host(ProviderMetrics(i)),
		"debugAddress":   debugAddress(i),
		"publicURL":      ProviderURL,
		"keysFile":       l.path("rp", "keys.json"), "installation": "flexlab",
		"clusters": []object{
			{"id": ClusterID, "kubeconfig": l.replicaKubeconfig(i, ClusterID), "local": true},
			{"id": SecondClusterID, "kubeconfig": l.replicaKubeconfig(i, SecondClusterID),
				"local": true},
		},
		"auditFile": l.replicaPath(i, "audit.log"),
	})
	if l.Members == 0 {
		settings["dataDir"] = l.path("rp", "data")
		return settings, nil
	}
	var endpoints []string
	for j := range l.Members {
		endpoints = append(endpoints, fmt.Sprintf("http://127.0.0.1:%d", linkPort(i, j)))
	}
	settings["etcd"] = object{"endpoints": endpoints, "insecure": true} // all on the host
	return settings, nil
}

// commonSettings returns the settings that every provider in the lab shares: Azure, and the
// components of nodes. The files are Azure's CA and the provider's secret, at their paths for the
// provider.
func (l *Lab) commonSettings(
	ctx context.Context, who Azure, caFile, secretFile string,
) (object, error) {
	if err := l.Mirror().Reload(ctx); err != nil { // other versions may have been built since
		return nil, err
	}
	catalog, err := l.artifacts(ctx, Newest)
	if err != nil {
		return nil, err
	}
	return object{
		"tenantId": Tenant, "caFile": caFile,
		"authentication": object{
			"issuers": []object{{"url": AzureURL + "/" + Tenant + "/", "tenantId": Tenant,
				"keysURL": AzureURL + "/" + Tenant + "/discovery/v2.0/keys"}},
			"audiences": []string{who.audience()},
		},
		"azure": object{"resourceManagerEndpoint": AzureURL, "authorityHost": AzureURL,
			"tenantId": Tenant, "clientId": who.Provider.ClientID, "clientSecretFile": secretFile},
		// The operator fills the store for measurements.
		"limits": object{
			"exceptions": object{who.Operator.ObjectID: asMuchAsCanBeSent,
				Subscription: asMuchAsCanBeSent},
			"quotas": object{"subscriptions": object{
				Subscription: object{"nodes": 1_000_000, "tokens": 1_000_000, "bytes": 4 << 30}}},
		},
		"nodeDefaults": object{
			"artifacts": object{"mirror": MirrorURL, "overrides": catalog.AllOverrides()},
			"azure":     object{"resourceManagerEndpoint": AzureURL, "authorityHost": AzureURL}},
	}, nil
}

// asMuchAsCanBeSent is a rate limit that is never reached.
const asMuchAsCanBeSent = 100_000

// AllAtOnce returns a rollout policy with which no node waits for another: machines in a lab belong
// to independent tests.
func AllAtOnce() object {
	return object{"maxUnavailable": "100%", "canaries": 0, "soak": "PT0S", "maxFailed": 1000,
		"maxUnknown": "100%"}
}

// registerCluster registers the subscription with Resource Manager and the cluster with the
// provider, as an operator does once.
func (l *Lab) registerCluster(ctx context.Context) error {
	if status, text, err := l.ARM(ctx, http.MethodPost, AzureURL,
		"/subscriptions/"+Subscription+"/providers/Microsoft.ContainerService/register", "2021-04-01",
		nil); err != nil || status != http.StatusOK {
		return errors.Join(err, fmt.Errorf("cannot register the subscription: %d %s", status, text))
	}
	body := object{"location": "lab", "properties": object{
		"kubeconfig": "flexlab", "rolloutPolicy": AllAtOnce(), "dnsServiceIP": DNSService}}
	if status, text, err := l.ARM(ctx, http.MethodPut, ProviderURL, ClusterID, ProviderAPI,
		body); err != nil || status/100 != 2 {
		return errors.Join(err, fmt.Errorf("cannot register the cluster: %d %s", status, text))
	}
	return nil
}

// HTTPClient returns a client that trusts the lab's CAs.
func (l *Lab) HTTPClient() (*http.Client, error) {
	pool, err := l.trusted()
	if err != nil {
		return nil, err
	}
	return &http.Client{Timeout: 70 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool,
			MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}}, nil
}

// AccessToken returns a token for Resource Manager.
func (l *Lab) AccessToken(ctx context.Context, p Principal) (string, error) {
	return l.tokenFor(ctx, p, AzureURL)
}

// TokenAt returns a token for a base URL, of Resource Manager or a provider.
func (l *Lab) TokenAt(ctx context.Context, p Principal, base string) (string, error) {
	who, err := l.Azure()
	if err != nil || base == AzureURL {
		return l.AccessToken(ctx, p)
	}
	return l.tokenFor(ctx, p, who.audience())
}

// operatorToken returns a token of the lab's operator for a base URL.
func (l *Lab) operatorToken(ctx context.Context, base string) (string, error) {
	who, err := l.Azure()
	if err != nil {
		return "", err
	}
	return l.TokenAt(ctx, who.Operator, base)
}

// authorized returns a request with a token and a body of JSON.
func authorized(
	ctx context.Context, method, url, token string, body []byte,
) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err == nil {
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
	}
	return r, err
}

// request sends a request with a token and a body of JSON. The body of the response has been read.
func request(
	ctx context.Context, client *http.Client, method, url, token string, body []byte,
) (*http.Response, []byte, error) {
	r, err := authorized(ctx, method, url, token, body)
	if err != nil {
		return nil, nil, err
	}
	response, err := client.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response, text, err
}

// audience returns the audience of tokens for the provider.
func (a Azure) audience() string { return "api://" + a.Provider.ClientID }

// tokenFor returns an access token of a service principal for a resource.
func (l *Lab) tokenFor(ctx context.Context, p Principal, resource string) (string, error) {
	client, err := l.HTTPClient()
	if err != nil {
		return "", err
	}
	defer client.CloseIdleConnections()
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {p.ClientID},
		"client_secret": {p.Secret}, "scope": {resource + "/.default"}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost,
		AzureURL+"/"+Tenant+"/oauth2/v2.0/token", strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var answer struct {
		Token       string `json:"access_token"`
		Description string `json:"error_description"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return "", fmt.Errorf("cannot read the token: %w", err)
	}
	if answer.Token == "" {
		return "", fmt.Errorf("cannot get a token: %s", answer.Description)
	}
	return answer.Token, nil
}

// ARM sends a request of the lab's operator to Resource Manager, or directly to the provider, and
// returns the status and body.
func (l *Lab) ARM(
	ctx context.Context, method, base, path, version string, body any,
) (int, string, error) {
	token, err := l.operatorToken(ctx, base)
	if err != nil {
		return 0, "", err
	}
	client, err := l.HTTPClient()
	if err != nil {
		return 0, "", err
	}
	defer client.CloseIdleConnections()
	var content []byte
	if body != nil {
		if content, err = json.Marshal(body); err != nil {
			return 0, "", fmt.Errorf("internal error: %w", err)
		}
	}
	mark := "?"
	if strings.Contains(path, "?") {
		mark = "&"
	}
	response, text, err := request(ctx, client, method, base+path+mark+"api-version="+version, token,
		content)
	if err != nil {
		return 0, "", err
	}
	return response.StatusCode, string(text), nil
}
