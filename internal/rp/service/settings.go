// Package service is the provider as a program: its settings, its listeners, and starting and stopping in the right order.
package service

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/rp"
	store "github.com/Azure/AKSFlexNode/internal/rp/oldstore"
)

// Settings are what the operator of a provider writes, as JSON. Paths are absolute or relative to where the program is started.
type Settings struct {
	// Listen is where callers come to themselves, with tokens.
	Listen *Listen `json:"listen,omitempty"`
	// ARMListen is where Azure Resource Manager comes to, with its client certificate. It has authorized its callers.
	ARMListen *ARMListen `json:"armListen,omitempty"`
	// MetricsAddress serves /metrics, /livez and /readyz without TLS; keep it inside.
	MetricsAddress string `json:"metricsAddress,omitempty"`
	// PublicURL is how machines reach Listen: configuration URLs begin with it.
	PublicURL string `json:"publicURL"`
	// DataDir holds the embedded store, when Etcd is not set.
	DataDir string `json:"dataDir,omitempty"`
	// Etcd is an etcd cluster outside the process.
	Etcd *Etcd `json:"etcd,omitempty"`
	// KeysFile holds the keys that secrets are sealed with; `flexnode-rp keys init` makes it.
	KeysFile string `json:"keysFile"`
	// KubeconfigDir holds the kubeconfigs that clusters name.
	KubeconfigDir string `json:"kubeconfigDir,omitempty"`
	// TenantID is that of subscriptions whose own was not told.
	TenantID string `json:"tenantId"`
	// Authentication says whose tokens are taken at Listen.
	Authentication Authentication `json:"authentication,omitzero"`
	// RoleAssignments say who may do what. With Azure set, Resource Manager is asked too.
	RoleAssignments rp.Assignments `json:"roleAssignments,omitempty"`
	// Azure is the provider's own identity, for kubeconfigs and role assignments.
	Azure *Azure `json:"azure,omitempty"`
	// NodeDefaults is agent configuration that every node is given, such as artifacts and proxy.
	NodeDefaults map[string]any `json:"nodeDefaults,omitempty"`
	// Blob hands configurations out through Azure Blob Storage instead of Listen.
	Blob *Blob `json:"blob,omitempty"`
	// CAFile has the CAs that outgoing connections trust; default the system's.
	CAFile string `json:"caFile,omitempty"`
	// AuditFile takes the audit log; default standard output.
	AuditFile string `json:"auditFile,omitempty"`
	LogLevel  string `json:"logLevel,omitempty"` // debug, info, warn or error
	// OTLPEndpoint takes traces, as an http(s) URL; default none.
	OTLPEndpoint string `json:"otlpEndpoint,omitempty"`
	// DrainSeconds is how long the program goes on after SIGTERM while it says that it is not ready, for load balancers to notice.
	DrainSeconds int `json:"drainSeconds,omitempty"`
}

// Listen is an address with TLS.
type Listen struct {
	Address  string `json:"address"`
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`
}

// ARMListen is an address that only Resource Manager can use.
type ARMListen struct {
	Listen
	// ClientCAFile has the CAs of Resource Manager's certificate, ClientNames are the names that it may have.
	ClientCAFile string   `json:"clientCAFile"`
	ClientNames  []string `json:"clientNames"`
}

// Etcd is an etcd cluster.
type Etcd struct {
	Endpoints []string `json:"endpoints"`
	CAFile    string   `json:"caFile,omitempty"`
	CertFile  string   `json:"certFile,omitempty"`
	KeyFile   string   `json:"keyFile,omitempty"`
}

// Authentication are issuers of tokens, and what the tokens must be for.
type Authentication struct {
	Issuers   []rp.Issuer `json:"issuers"`
	Audiences []string    `json:"audiences"`
}

// Azure is a service principal and its cloud.
type Azure struct {
	ResourceManagerEndpoint string `json:"resourceManagerEndpoint,omitempty"`
	AuthorityHost           string `json:"authorityHost,omitempty"`
	TenantID                string `json:"tenantId"`
	ClientID                string `json:"clientId"`
	ClientSecretFile        string `json:"clientSecretFile"`
}

// Blob is a container in a storage account.
type Blob struct {
	ContainerURL   string `json:"containerURL"`
	Account        string `json:"account"`
	AccountKeyFile string `json:"accountKeyFile"`
}

// Endpoints is where the store of a running provider is reached: the etcd cluster, or the socket of the embedded one.
func (s Settings) Endpoints() store.External {
	if e := s.Etcd; e != nil {
		return store.External{Endpoints: e.Endpoints, CAFile: e.CAFile, CertFile: e.CertFile, KeyFile: e.KeyFile}
	}
	return store.LocalEndpoint(s.DataDir)
}

// Load reads settings and checks them; the error has every problem.
func Load(path string) (Settings, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Settings{}, fmt.Errorf("cannot read the settings: %w", err)
	}
	s := Settings{LogLevel: "info"}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, fmt.Errorf("cannot read the settings in %s: %w", path, err)
	}
	if err := s.check(); err != nil {
		return s, fmt.Errorf("cannot use the settings in %s:\n%w", path, err)
	}
	return s, nil
}

func (s Settings) check() error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	need(s.Listen != nil || s.ARMListen != nil, "listen: set this or armListen")
	need((s.DataDir != "") != (s.Etcd != nil), "dataDir: set exactly one of dataDir and etcd")
	need(s.KeysFile != "", "keysFile: must be set; `flexnode-rp keys init FILE` makes one")
	need(s.TenantID != "", "tenantId: must be set")
	u, err := url.Parse(s.PublicURL)
	need(err == nil && u.Scheme == "https" && u.Host != "" && strings.Trim(u.Path, "/") == "", "publicURL: must be an https URL of a host, perhaps with a port")
	if l := s.Listen; l != nil {
		need(l.Address != "" && l.CertFile != "" && l.KeyFile != "", "listen: needs address, certFile and keyFile")
		need(len(s.Authentication.Issuers) > 0 && len(s.Authentication.Audiences) > 0, "authentication: needs issuers and audiences, for listen")
	}
	if l := s.ARMListen; l != nil {
		need(l.Address != "" && l.CertFile != "" && l.KeyFile != "" && l.ClientCAFile != "" && len(l.ClientNames) > 0, "armListen: needs address, certFile, keyFile, clientCAFile and clientNames")
	}
	for i, issuer := range s.Authentication.Issuers {
		need(issuer.URL != "" && issuer.TenantID != "" && strings.HasPrefix(issuer.KeysURL, "https://"), "authentication.issuers[%d]: needs url, tenantId and keysURL (https)", i)
	}
	for i, a := range s.RoleAssignments {
		need(a.PrincipalID != "" && strings.HasPrefix(a.Scope, "/") && len(a.Actions) > 0, "roleAssignments[%d]: needs principalId, scope (/ or a resource id) and actions", i)
	}
	need(s.Etcd == nil || len(s.Etcd.Endpoints) > 0, "etcd.endpoints: must be set")
	need(s.Azure == nil || s.Azure.TenantID != "" && s.Azure.ClientID != "" && s.Azure.ClientSecretFile != "", "azure: needs tenantId, clientId and clientSecretFile")
	need(s.Blob == nil || s.Blob.ContainerURL != "" && s.Blob.Account != "" && s.Blob.AccountKeyFile != "", "blob: needs containerURL, account and accountKeyFile")
	var level slog.Level
	need(level.UnmarshalText([]byte(s.LogLevel)) == nil, "logLevel: must be debug, info, warn or error")
	for _, problem := range rp.CheckDefaults(s.NodeDefaults) {
		errs = append(errs, fmt.Errorf("nodeDefaults: %s", problem))
	}
	return errors.Join(errs...)
}
