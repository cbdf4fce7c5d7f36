package service

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/rp/cluster"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

type problems []error

func (p *problems) need(ok bool, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

func (s Settings) check() error {
	var p problems
	s.checkListeners(&p)
	s.checkStore(&p)
	s.checkCallers(&p)
	p.need(s.Azure == nil ||
		s.Azure.TenantID != "" && s.Azure.ClientID != "" && s.Azure.ClientSecretFile != "",
		"azure: needs tenantId, clientId and clientSecretFile")
	p.need(s.TenantID != "", "tenantId: must be set")
	p.need(labelValue.MatchString(s.Installation),
		"installation: must be 1 to 63 letters, digits, '.', '_' and '-', a letter or digit first "+
			"and last")
	for _, problem := range cluster.CheckBindings(s.Clusters) {
		p = append(p, errors.New(problem))
	}
	p.need(s.Polls.PerSecond >= 0, "polls.perSecond: must be at least 0")
	p.need(s.Polls.WaitSeconds >= 0 && s.Polls.WaitSeconds <= maxWait,
		"polls.waitSeconds: must be 0 to %d: load balancers between agents and the provider end "+
			"longer requests", maxWait)
	p.need(s.DrainSeconds >= 0 && s.DrainSeconds <= maxDrain,
		"drainSeconds: must be 0 to %d: stopping the program takes that long", maxDrain)
	for _, problem := range s.Limits.Check() {
		p = append(p, fmt.Errorf("limits.%s", problem))
	}
	var level slog.Level
	p.need(level.UnmarshalText([]byte(s.LogLevel)) == nil,
		"logLevel: must be debug, info, warn or error")
	for _, problem := range flexnode.CheckDefaults(s.NodeDefaults) {
		p = append(p, fmt.Errorf("nodeDefaults: %s", problem))
	}
	return errors.Join(p...)
}

func (s Settings) checkListeners(p *problems) {
	p.need(s.Listen != nil || s.ARMListen != nil, "listen: set this or armListen")
	const must = "must be an https URL of a host, optionally with a port"
	p.need(isHostURL(s.PublicURL), "publicURL: %s", must)
	for i, other := range s.OtherURLs {
		p.need(isHostURL(other), "otherURLs[%d]: %s", i, must)
	}
	if l := s.Listen; l != nil {
		p.need(l.Address != "" && l.CertFile != "" && l.KeyFile != "",
			"listen: needs address, certFile and keyFile")
	}
	if l := s.ARMListen; l != nil {
		p.need(l.Address != "" && l.CertFile != "" && l.KeyFile != "" && l.ClientCAFile != "" &&
			len(l.ClientNames) > 0,
			"armListen: needs address, certFile, keyFile, clientCAFile and clientNames")
		p.need(s.Listen != nil || s.Blob != nil, "armListen: machines cannot fetch their "+
			"configurations here; set listen or blob too")
	}
	p.need(s.DebugAddress == "" || isLoopback(s.DebugAddress),
		"debugAddress: must be a loopback address, such as 127.0.0.1:6060: it exposes the "+
			"program's memory")
}

func isHostURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && u.Host != "" && strings.Trim(u.Path, "/") == ""
}

func (s Settings) checkStore(p *problems) {
	p.need((s.DataDir != "") != (s.Etcd != nil), "dataDir: set exactly one of dataDir and etcd")
	p.need(s.Etcd == nil || len(s.Etcd.Endpoints) > 0, "etcd.endpoints: must be set")
	etcd := cmp.Or(s.Etcd, &Etcd{})
	for i, endpoint := range etcd.Endpoints {
		scheme, _, _ := strings.Cut(endpoint, "://")
		safe := slices.Contains([]string{"https", "unix", "unixs"}, scheme)
		p.need(safe || etcd.Insecure, "etcd.endpoints[%d]: must begin with https:// or unix://, unless "+
			"etcd.insecure is set: a machine on the path could change what nodes run", i)
	}
	p.need(s.KeysFile != "", "keysFile: must be set; `flexnode-rp keys init FILE` creates one")
	p.need(s.Blob == nil ||
		s.Blob.ContainerURL != "" && s.Blob.Account != "" && s.Blob.AccountKeyFile != "",
		"blob: needs containerURL, account and accountKeyFile")
}

func (s Settings) checkCallers(p *problems) {
	if s.Listen != nil {
		p.need(len(s.Authentication.Issuers) > 0, "authentication.issuers: must be set if listen is set")
		p.need(len(s.Authentication.Audiences) > 0, "authentication.audiences: must be set "+
			"if listen is set: to the ID of the provider's application in Entra ID, such as "+
			"api://CLIENT-ID")
	}
	for i, audience := range s.Authentication.Audiences {
		p.need(s.Authentication.AllowResourceManager || !s.isResourceManager(audience),
			"authentication.audiences[%d]: is the audience of Resource Manager: tokens that the provider "+
				"receives would be valid there. Register an application for the provider in Entra ID and "+
				"use its ID, such as api://CLIENT-ID, or set authentication.allowResourceManager", i)
	}
	for i, issuer := range s.Authentication.Issuers {
		p.need(issuer.URL != "" && issuer.TenantID != "" && strings.HasPrefix(issuer.KeysURL, "https://"),
			"authentication.issuers[%d]: needs url, tenantId and keysURL (https)", i)
	}
	for i, a := range s.RoleAssignments {
		p.need(a.PrincipalID != "" && strings.HasPrefix(a.Scope, "/") && len(a.Actions) > 0,
			"roleAssignments[%d]: needs principalId, scope (/ or a resource id) and actions", i)
	}
}

// CheckFiles reads the files that the settings name, but not keysFile: systemd may supply that to
// the service only. The error has every problem.
func (s Settings) CheckFiles() error {
	_, azure := newOutgoing(s)
	_, direct := tlsConfig(*cmp.Or(s.Listen, &Listen{}), "")
	arm := cmp.Or(s.ARMListen, &ARMListen{})
	_, manager := tlsConfig(arm.Listen, arm.ClientCAFile)
	p := problems{azure, direct, manager}
	if s.Blob != nil {
		_, err := readSecret(s.Blob.AccountKeyFile)
		p = append(p, err)
	}
	for i, b := range s.Clusters {
		if err := b.Check(); err != nil {
			p = append(p, fmt.Errorf("clusters[%d]: %w", i, err))
		}
	}
	return errors.Join(p...)
}

// resourceManagers lists Resource Manager's audiences in each cloud, and its application.
var resourceManagers = []string{
	"https://management.azure.com", "https://management.core.windows.net",
	"https://management.usgovcloudapi.net", "https://management.core.usgovcloudapi.net",
	"https://management.chinacloudapi.cn", "https://management.core.chinacloudapi.cn",
	"797f4846-ba00-4fd7-ba43-dac1f8f63013",
}

func (s Settings) isResourceManager(audience string) bool {
	is := func(name string) bool {
		return name != "" && strings.EqualFold(strings.TrimRight(name, "/"),
			strings.TrimRight(audience, "/"))
	}
	return s.Azure != nil && is(s.Azure.ResourceManagerEndpoint) ||
		slices.ContainsFunc(resourceManagers, is)
}

// Allowed lists the settings that relax a default for clusters or tokens.
func (s Settings) Allowed() (list []string) {
	for i, b := range s.Clusters {
		if b.Trusted {
			list = append(list, fmt.Sprintf("clusters[%d].trusted: %s may refer to files and "+
				"a proxy", i, b.Kubeconfig))
		}
		if b.Local {
			list = append(list, fmt.Sprintf("clusters[%d].local: %s may have an address that is "+
				"local to the provider", i, b.Kubeconfig))
		}
	}
	if s.Authentication.AllowResourceManager {
		list = append(list, "authentication.allowResourceManager: tokens that the provider receives "+
			"may be valid at Resource Manager")
	}
	if s.Azure != nil && s.Azure.AllowLocalClusters {
		list = append(list, "azure.allowLocalClusters: clusters without a binding may have an "+
			"address that is local to the provider")
	}
	return list
}

func isLoopback(address string) bool {
	host, _, _ := net.SplitHostPort(address) // "" is no address
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// installationOf returns the host of a URL, as a label value.
func installationOf(publicURL string) string {
	u, err := url.Parse(publicURL)
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(strings.Trim(u.Hostname(), "[]"), ":", "-")
}

var labelValue = regexp.MustCompile(`\A[[:alnum:]]([[:alnum:]._-]{0,61}[[:alnum:]])?\z`)
