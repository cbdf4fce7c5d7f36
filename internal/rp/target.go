package rp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v6"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/Azure/AKSFlexNode/internal/arm"
	store "github.com/Azure/AKSFlexNode/internal/rp/oldstore"
)

// Clusters reaches target clusters.
type Clusters interface {
	// Target returns a client of a cluster, with the URL and the CA (PEM) by which it is reached.
	Target(ctx context.Context, c store.Cluster) (Target, error)
}

// Target is a way to a cluster.
type Target struct {
	kubernetes.Interface
	ServerURL string
	CA        []byte
}

// errNoCluster is a cluster that is not registered any more.
var errNoCluster = errors.New("the cluster is not registered")

// target returns a client of the cluster with a key.
func (s *Server) target(ctx context.Context, key string) (Target, error) {
	row, err := s.Store.Clusters.Get(ctx, key)
	if err != nil {
		return Target{}, err
	}
	if !row.Exists() {
		return Target{}, errNoCluster
	}
	target, err := s.Clusters.Target(ctx, row.Value)
	return target, clusterError(key, "reach", err)
}

// Kubeconfigs reaches clusters by kubeconfigs: files in a directory, or what Resource Manager hands out.
type Kubeconfigs struct {
	// Dir holds the kubeconfigs that clusters refer to.
	Dir string
	// Manager asks Resource Manager for the kubeconfigs of clusters that refer to none; nil does not.
	Manager func(subscription string) (*armcontainerservice.ManagedClustersClient, error)

	mu    sync.Mutex
	known map[string]target
}

// target is a client and what it was made of.
type target struct {
	Target
	made   time.Time
	source string
}

// requestTimeout bounds one request to a cluster; watches are not bounded by it.
const requestTimeout = 10 * time.Second

// Target implements Clusters. A kubeconfig is read again when its file has changed, or after an hour.
func (k *Kubeconfigs) Target(ctx context.Context, c store.Cluster) (Target, error) {
	source, err := k.source(c)
	if err != nil {
		return Target{}, err
	}
	key := arm.Key(c.ID)
	k.mu.Lock()
	known, ok := k.known[key]
	k.mu.Unlock()
	if ok && known.source == source && time.Since(known.made) < time.Hour {
		return known.Target, nil
	}
	text, err := k.read(ctx, c)
	if err != nil {
		return Target{}, err
	}
	made, err := newTarget(text)
	if err != nil {
		return Target{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known == nil {
		k.known = map[string]target{}
	}
	k.known[key] = target{made, time.Now(), source}
	return made, nil
}

// source names what a client would be made of.
func (k *Kubeconfigs) source(c store.Cluster) (string, error) {
	if c.Properties.Kubeconfig == "" {
		return "manager", nil
	}
	info, err := os.Stat(k.path(c))
	if err != nil {
		return "", fmt.Errorf("cannot read the kubeconfig: %w", err)
	}
	return fmt.Sprintf("%s %s", k.path(c), info.ModTime()), nil
}

func (k *Kubeconfigs) path(c store.Cluster) string {
	return filepath.Join(k.Dir, filepath.Base(c.Properties.Kubeconfig))
}

func (k *Kubeconfigs) read(ctx context.Context, c store.Cluster) ([]byte, error) {
	if c.Properties.Kubeconfig != "" {
		text, err := os.ReadFile(k.path(c))
		if err != nil {
			return nil, fmt.Errorf("cannot read the kubeconfig: %w", err)
		}
		return text, nil
	}
	if k.Manager == nil {
		return nil, errors.New("cannot reach the cluster: it names no kubeconfig, and the provider has no identity with which to ask Resource Manager for one")
	}
	id, err := arm.Parse(c.ID)
	if err != nil {
		return nil, err
	}
	client, err := k.Manager(id.Subscription)
	if err != nil {
		return nil, err
	}
	got, err := client.ListClusterAdminCredentials(ctx, id.ResourceGroup, id.Name(), nil)
	if err != nil {
		return nil, fmt.Errorf("cannot get the kubeconfig from Resource Manager: %w", err)
	}
	if len(got.Kubeconfigs) == 0 {
		return nil, errors.New("cannot get the kubeconfig from Resource Manager: it has none")
	}
	return got.Kubeconfigs[0].Value, nil
}

func newTarget(kubeconfig []byte) (Target, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return Target{}, fmt.Errorf("cannot use the kubeconfig: %w", err)
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return Target{}, fmt.Errorf("cannot use the kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 50, 100
	config.UserAgent = "flexnode-rp"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return Target{}, fmt.Errorf("cannot use the kubeconfig: %w", err)
	}
	return Target{Interface: client, ServerURL: config.Host, CA: config.CAData}, nil
}

// facts are what nodes are told of a cluster that is reached in a way.
func (t Target) facts(c store.Cluster, dns, tenant string) store.Facts {
	f := store.Facts{ServerURL: t.ServerURL, CACertData: base64.StdEncoding.EncodeToString(t.CA), DNSServiceIP: dns, TenantID: tenant, Location: c.Location}
	if c.Properties.ServerURL != "" {
		f.ServerURL = strings.TrimSuffix(c.Properties.ServerURL, "/")
	}
	if c.Properties.DNSServiceIP != "" {
		f.DNSServiceIP = c.Properties.DNSServiceIP
	}
	return f
}

// tenantOf is the tenant of a subscription as ARM told it.
func (s *Server) tenantOf(ctx context.Context, subscription string) (string, error) {
	row, err := s.Store.Subscriptions.Get(ctx, strings.ToLower(subscription))
	if err != nil {
		return "", err
	}
	var properties struct {
		TenantID string `json:"tenantId"`
	}
	if json.Unmarshal(row.Value.Properties, &properties) == nil && properties.TenantID != "" {
		return properties.TenantID, nil
	}
	return s.TenantID, nil
}
