package cluster

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// Binding binds a kubeconfig file to one cluster. Only the operator of the provider makes bindings,
// so that a caller who registers a cluster cannot name another one's file.
type Binding struct {
	// ClusterID is the ARM id of the cluster, in any casing.
	ClusterID string `json:"id"`
	// Kubeconfig is the path of the file.
	Kubeconfig string `json:"kubeconfig"`
	// Trusted allows the file to name other files and a proxy. Its writer can then read what the
	// provider can.
	Trusted bool `json:"trusted,omitempty"`
	// Local allows the API server to be at the provider's own addresses, loopback or link-local.
	Local bool `json:"local,omitempty"`
}

// Access is the access to a cluster that its source gives at a time.
type Access struct {
	// Config is the configuration of a client. It names no files and no program.
	Config *rest.Config
	// Local allows the API server to be at one of the provider's own addresses.
	Local bool
	// Fingerprint changes with every part of the access.
	Fingerprint string
}

// Source gives access to clusters.
type Source interface {
	// Access returns the present access to a cluster; it is called every few seconds. again reports
	// that the API server has refused the last access, or that its certificate was refused: cached
	// values must not be used.
	Access(ctx context.Context, c flexnode.Cluster, again bool) (Access, error)
}

// ErrNotBound is the error for a cluster to which the operator has bound no kubeconfig of that
// name: it is not reached, even if it was before.
var ErrNotBound = errors.New("the kubeconfig is not bound to this cluster")

// Sources is a Source of the kubeconfigs that the operator has bound to clusters, and of Resource
// Manager for all other clusters.
type Sources struct {
	Bindings []Binding
	// Manager is the source for clusters without a binding; nil if there is no Azure identity.
	Manager Source
	// Ends receives the client certificate in a binding's kubeconfig, nil if it has none; it may be
	// nil.
	Ends func(kubeconfig string, certificate *x509.Certificate)

	read sync.Map // of readAccess, by Binding
}

// readAccess is the access of a binding, and the state of the file that it was read from.
type readAccess struct {
	access Access
	file   os.FileInfo
}

// settled is the age of a file after which another write changes its time.
const settled = 2 * time.Second

// access returns the access of a binding. It reads the kubeconfig again when its file has changed,
// and always if it is trusted: it may name other files.
func (s *Sources) access(b Binding) (Access, error) {
	last, _ := s.read.Load(b)
	known, ok := last.(readAccess)
	file, err := os.Stat(b.Kubeconfig)
	if ok && err == nil && os.SameFile(file, known.file) && file.Size() == known.file.Size() &&
		file.ModTime().Equal(known.file.ModTime()) {
		return known.access, nil
	}
	access, failed := b.access()
	if failed == nil && s.Ends != nil {
		// It may have a token; the pair is empty then.
		pair, _ := tls.X509KeyPair(access.Config.CertData, access.Config.KeyData)
		s.Ends(b.Kubeconfig, pair.Leaf)
	}
	if err != nil || failed != nil || b.Trusted || time.Since(file.ModTime()) < settled {
		return access, failed
	}
	s.read.Store(b, readAccess{access, file})
	return access, nil
}

// Access implements Source.
func (s *Sources) Access(ctx context.Context, c flexnode.Cluster, again bool) (Access, error) {
	binding, err := s.binding(c.ID, c.Properties.Kubeconfig)
	switch {
	case err != nil:
		return Access{}, err
	case binding != Binding{}:
		return s.access(binding)
	case s.Manager == nil:
		return Access{}, fmt.Errorf("cannot reach the cluster: %w, and the provider has no "+
			"identity with which to ask Resource Manager for one", ErrNotBound)
	}
	return s.Manager.Access(ctx, c, again)
}

// Check returns an error if a cluster names a kubeconfig that is not bound to it.
func (s *Sources) Check(clusterID, kubeconfig string) error {
	_, err := s.binding(clusterID, kubeconfig)
	return err
}

// binding returns the binding of a cluster; none if it names no kubeconfig and has none. A name is
// that of the file, with or without its extension, or its whole path.
func (s *Sources) binding(clusterID, name string) (Binding, error) {
	for _, b := range s.Bindings {
		if arm.Key(b.ClusterID) != arm.Key(clusterID) {
			continue
		}
		base := filepath.Base(b.Kubeconfig)
		bare := strings.TrimSuffix(base, filepath.Ext(base))
		if name == "" || name == base || name == bare || name == b.Kubeconfig {
			return b, nil
		}
	}
	if name == "" {
		return Binding{}, nil
	}
	return Binding{}, fmt.Errorf("cannot use the kubeconfig %q: %w; ask the operator of the "+
		"provider to bind it in its settings", name, ErrNotBound)
}

// CheckBindings returns the problems of bindings, each with its place in the settings.
func CheckBindings(bindings []Binding) []string {
	var problems []string
	add := func(i int, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("clusters[%d]: ", i)+fmt.Sprintf(format, args...))
	}
	owner := map[string]string{}
	for i, b := range bindings {
		id, err := arm.Parse(b.ClusterID)
		if err != nil || !arm.EqualFold(id.Type(), flexnode.ClusterType) || id.Name() == "" {
			add(i, "id: %q is not the id of a managed cluster", b.ClusterID)
			continue
		}
		if b.Kubeconfig == "" {
			add(i, "kubeconfig: must be set")
			continue
		}
		path := filepath.Clean(b.Kubeconfig)
		if other, taken := owner[path]; taken && other != id.Key() {
			add(i, "kubeconfig: %s is bound to %s already", b.Kubeconfig, other)
		}
		owner[path] = id.Key()
	}
	return problems
}

// Check returns an error if the kubeconfig cannot be used. The provider does not call it at the
// start, so that the file of one team cannot stop the work for others.
func (b Binding) Check() error {
	_, err := b.access()
	return err
}

// access reads the kubeconfig and, if it is trusted, the files that it names: a change of any of
// them changes the fingerprint.
func (b Binding) access() (Access, error) {
	text, err := readFile(b.Kubeconfig)
	if err != nil {
		return Access{}, fmt.Errorf("cannot read the kubeconfig: %w", err)
	}
	var config *rest.Config
	if b.Trusted {
		config, err = trustedConfig(b.Kubeconfig)
	} else {
		config, err = plainConfig(text)
	}
	if err != nil {
		return Access{}, fmt.Errorf("cannot use the kubeconfig %s: %w", b.Kubeconfig, err)
	}
	return Access{
		Config: config, Fingerprint: fingerprint("file "+b.Kubeconfig, text, config), Local: b.Local,
	}, nil
}

// fingerprint returns a digest of the parts of an access.
func fingerprint(source string, text []byte, config *rest.Config) string {
	sum := sha256.New()
	for _, part := range [][]byte{[]byte(source), text, config.CAData, config.CertData,
		config.KeyData, []byte(config.BearerToken)} {
		own := sha256.Sum256(part)
		sum.Write(own[:])
	}
	return hex.EncodeToString(sum.Sum(nil))
}
