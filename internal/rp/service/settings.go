package service

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/rp/cluster"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/front"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// Settings holds the settings of a provider's operator, as JSON. Paths are absolute or relative to
// the working directory.
type Settings struct {
	// Listen is the listener for direct callers, with tokens.
	Listen *Listen `json:"listen,omitempty"`
	// ARMListen is the listener for Azure Resource Manager, with its client certificate. It has
	// authorized its callers.
	ARMListen *ARMListen `json:"armListen,omitempty"`
	// MetricsAddress serves /metrics, /livez and /readyz without TLS; keep it inside.
	MetricsAddress string `json:"metricsAddress,omitempty"`
	// DebugAddress serves profiles of the program, which hold its keys: on loopback only.
	DebugAddress string `json:"debugAddress,omitempty"`
	// PublicURL is the address of Listen for machines: configuration URLs begin with it.
	PublicURL string `json:"publicURL"`
	// OtherURLs lists further addresses of Listen for machines, such as a former PublicURL.
	OtherURLs []string `json:"otherURLs,omitempty"`
	// Installation names this provider among others that work in the same clusters; all replicas
	// have the same. Default: the host of PublicURL.
	Installation string `json:"installation,omitempty"`
	// DataDir holds the embedded store, when Etcd is not set.
	DataDir string `json:"dataDir,omitempty"`
	// Etcd is an etcd cluster outside the process.
	Etcd *Etcd `json:"etcd,omitempty"`
	// KeysFile holds the keys that secrets are sealed with; `flexnode-rp keys init` makes it.
	KeysFile string `json:"keysFile"`
	// Clusters binds kubeconfigs to the clusters that may be reached with them.
	Clusters []cluster.Binding `json:"clusters,omitempty"`
	// TenantID is the tenant of subscriptions for which ARM has sent none.
	TenantID string `json:"tenantId"`
	// Authentication holds the accepted issuers and audiences of tokens at Listen.
	Authentication Authentication `json:"authentication,omitzero"`
	// RoleAssignments grants permissions. With Azure set, Resource Manager's count too.
	RoleAssignments front.Assignments `json:"roleAssignments,omitempty"`
	// Azure is the provider's own identity, for clusters without a kubeconfig and for role
	// assignments.
	Azure *Azure `json:"azure,omitempty"`
	// Limits limits the use of the provider by its callers.
	Limits fair.Limits `json:"limits,omitzero"`
	// NodeDefaults is agent configuration for every node, such as artifacts and proxy.
	NodeDefaults map[string]any `json:"nodeDefaults,omitempty"`
	// Blob hands configurations out through Azure Blob Storage instead of Listen.
	Blob *Blob `json:"blob,omitempty"`
	// CAFile has the CAs that outgoing connections trust; default the system's.
	CAFile string `json:"caFile,omitempty"`
	// AuditFile is the file of the audit log; default standard output.
	AuditFile string `json:"auditFile,omitempty"`
	LogLevel  string `json:"logLevel,omitempty"` // debug, info, warn or error
	// OTLPEndpoint receives traces, at an http(s) URL; default none.
	OTLPEndpoint string `json:"otlpEndpoint,omitempty"`
	// Polls limits the polls of agents to a replica.
	Polls Polls `json:"polls"`
	// DrainSeconds is the time for which the program continues after SIGTERM while it reports that
	// it is not ready, for load balancers to notice; at most 30.
	DrainSeconds int `json:"drainSeconds,omitempty"`
}

// Polls limits the polls of agents to a replica.
type Polls struct {
	// PerSecond limits the polls of agents each second, by the interval that they are given; 0 is no
	// limit.
	PerSecond int `json:"perSecond"`
	// WaitSeconds limits the time that a poll may wait for a change; with 0 none waits.
	WaitSeconds int `json:"waitSeconds"`
}

// defaultPolls has the polls that a replica of two cores can serve beside other work, and a wait
// shorter than the timeouts between agents and provider (usually 60 seconds).
var defaultPolls = Polls{PerSecond: 4000, WaitSeconds: 25}

// maxDrain is the max value of DrainSeconds: systemd kills the program 90 s after SIGTERM
// (packaging/systemd/flexnode-rp.service).
const maxDrain = 30

const maxWait = 50

// Listen is an address with TLS.
type Listen struct {
	Address  string `json:"address"`
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`
}

// ARMListen is an address that only Resource Manager can use.
type ARMListen struct {
	Listen
	// ClientCAFile has the CAs of Resource Manager's certificate, ClientNames lists its accepted
	// names.
	ClientCAFile string   `json:"clientCAFile"`
	ClientNames  []string `json:"clientNames"`
}

// Etcd is an etcd cluster.
type Etcd struct {
	store.External
	// Insecure allows endpoints without TLS: a machine on the path could change what nodes run.
	Insecure bool `json:"insecure,omitempty"`
}

// Authentication holds issuers of tokens, and the audiences that the tokens must have.
type Authentication struct {
	Issuers []front.Issuer `json:"issuers"`
	// Audiences lists the ids of the provider's own application in Entra ID. Nodes get the first.
	Audiences []string `json:"audiences"`
	// AllowResourceManager allows audiences of Resource Manager. A reader of such a token here could
	// act for its owner there.
	AllowResourceManager bool `json:"allowResourceManager,omitempty"`
}

// Azure is a service principal and its cloud.
type Azure struct {
	ResourceManagerEndpoint string `json:"resourceManagerEndpoint,omitempty"`
	AuthorityHost           string `json:"authorityHost,omitempty"`
	TenantID                string `json:"tenantId"`
	ClientID                string `json:"clientId"`
	ClientSecretFile        string `json:"clientSecretFile"`
	// AdminCredentials allows the provider to reach clusters that do not accept Entra's tokens as
	// their administrator.
	AdminCredentials bool `json:"adminCredentials,omitempty"`
	// AllowLocalClusters allows API servers at loopback, link-local and the provider's own addresses
	// for clusters without a binding.
	AllowLocalClusters bool `json:"allowLocalClusters,omitempty"`
}

// Blob is a container in a storage account.
type Blob struct {
	ContainerURL   string `json:"containerURL"`
	Account        string `json:"account"`
	AccountKeyFile string `json:"accountKeyFile"`
}

// Endpoints returns the endpoints of a running provider's store: the etcd cluster, or the socket of
// the embedded one.
func (s Settings) Endpoints() store.External {
	if s.Etcd != nil {
		return s.Etcd.External
	}
	return store.LocalEndpoint(s.DataDir)
}

// Load reads settings and checks them; the error has every problem.
func Load(path string) (Settings, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Settings{}, fmt.Errorf("cannot read the settings: %w", err)
	}
	s := Settings{LogLevel: "info", Polls: defaultPolls, Limits: fair.DefaultLimits()}
	exact := jsonv2.JoinOptions(jsonv1.DefaultOptionsV1(),
		jsonv2.MatchCaseInsensitiveNames(false), jsonv2.RejectUnknownMembers(true))
	if err := cmp.Or(config.Decode(data, nil), jsonv2.Unmarshal(data, &s, exact)); err != nil {
		return s, fmt.Errorf("cannot read the settings in %s: %w", path, err)
	}
	for i := range s.OtherURLs {
		s.OtherURLs[i] = strings.TrimRight(s.OtherURLs[i], "/")
	}
	if s.Installation == "" {
		s.Installation = installationOf(s.PublicURL)
	}
	if err := s.check(); err != nil {
		return s, fmt.Errorf("cannot use the settings in %s:\n%w", path, err)
	}
	return s, nil
}

// audience returns the audience of tokens for the provider's own listener; "" without one.
func (s Settings) audience() string {
	if s.Listen == nil || len(s.Authentication.Audiences) == 0 {
		return ""
	}
	return s.Authentication.Audiences[0]
}

// endpoints returns the URLs at which agents may poll, the default one first.
func (s Settings) endpoints() []string {
	if s.Listen == nil {
		return s.OtherURLs
	}
	return append([]string{strings.TrimRight(s.PublicURL, "/")}, s.OtherURLs...)
}

// defaults returns the operator's settings for every node, with this provider to poll.
func (s Settings) defaults() *flexnode.Layer {
	endpoint := append(s.endpoints(), "")[0]
	return flexnode.DefaultsLayer(flexnode.Polling(s.NodeDefaults, endpoint, s.audience()))
}

// Program holds the version and role of this process, and its connection to the service manager.
type Program struct {
	Version string
	Role    Role
	// Notify reports the state of the provider to the service manager, in the words of sd_notify(3).
	Notify func(state string)
}

// Role is the role of a replica.
type Role string

const (
	// All does everything.
	All Role = "all"
	// Front answers callers and machines, and owns no cluster.
	Front Role = "front"
	// Controller works in the clusters that it owns. It answers only requests for health, metrics
	// and profiles.
	Controller Role = "controller"
)

// Check returns an error if a replica with these settings cannot have the role.
func (r Role) Check(s Settings) error {
	switch {
	case !slices.Contains([]Role{All, Front, Controller}, r):
		return fmt.Errorf("cannot use --role %s: it must be front, controller or all", r)
	case r != All && s.Etcd == nil:
		return fmt.Errorf("cannot run as %s with an embedded store: fronts and controllers share an "+
			"external etcd; set etcd instead of dataDir", r)
	}
	return nil
}
