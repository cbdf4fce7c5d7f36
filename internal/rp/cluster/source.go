package cluster

import (
	"context"
	"crypto/sha256"
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

// Binding says that a kubeconfig file is that of one cluster. Only the operator of the provider
// makes bindings, so that who registers a cluster cannot name another one's file.
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

// Access is a way to a cluster, as its source gives it at a time.
type Access struct {
	// Config says how the API server is reached. It names no files and no program.
	Config *rest.Config
	// Local allows the API server to be at one of the provider's own addresses.
	Local bool
	// Fingerprint changes with everything that the access consists of.
	Fingerprint string
}

// Source gives the access to clusters.
type Source interface {
	// Access is the present access to a cluster. It is asked every few seconds. again tells that
	// the last one was refused by the API server, or its certificate by us: what was remembered
	// is of no use then.
	Access(ctx context.Context, c flexnode.Cluster, again bool) (Access, error)
}

// ErrNotBound is a cluster for which the operator has bound no kubeconfig of that name: it is not
// reached, whatever was known of it before.
var ErrNotBound = errors.New("the kubeconfig is not bound to this cluster")

// Sources are the kubeconfigs that the operator has bound to clusters, and Resource Manager for all
// others.
type Sources struct {
	Bindings []Binding
	// Manager is asked for clusters without a binding; nil: the provider has no identity in Azure.
	Manager Source

	mu   sync.Mutex
	read map[Binding]readAccess
}

// readAccess is the access of a binding, and the state of the file that it was read from.
type readAccess struct {
	access Access
	file   os.FileInfo
}

// settled is the age from which on a file has another time when it is written again.
const settled = 2 * time.Second

// access returns the access of a binding. It parses the kubeconfig again when its file has changed,
// and always if it is trusted: then other files count, too.
func (s *Sources) access(b Binding) (Access, error) {
	s.mu.Lock()
	known, ok := s.read[b]
	s.mu.Unlock()
	file, err := os.Stat(b.Kubeconfig)
	if ok && err == nil && os.SameFile(file, known.file) && file.Size() == known.file.Size() &&
		file.ModTime().Equal(known.file.ModTime()) {
		return known.access, nil
	}
	access, failed := b.access()
	if err != nil || failed != nil || b.Trusted || time.Since(file.ModTime()) < settled {
		return access, failed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read == nil {
		s.read = map[Binding]readAccess{}
	}
	s.read[b] = readAccess{access, file}
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

// Check refuses the registration of a cluster that names a kubeconfig that is not its own.
func (s *Sources) Check(clusterID, kubeconfig string) error {
	_, err := s.binding(clusterID, kubeconfig)
	return err
}

// binding is that of a cluster; none if it names no kubeconfig and has none. A name is that of the
// file, with or without its ending, or its whole path.
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

// CheckBindings lists what is wrong with bindings, each with its place in the settings.
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

// Check returns why the kubeconfig cannot be used. The provider does not call it at the start, so
// that the file of one team cannot stop the work for others.
func (b Binding) Check() error {
	_, err := b.access()
	return err
}

// access reads the kubeconfig and, if it is trusted, the files that it names: the fingerprint
// changes with each of them.
func (b Binding) access() (Access, error) {
	text, err := readFile(b.Kubeconfig)
	if err != nil {
		return Access{}, fmt.Errorf("cannot read the kubeconfig: %w", err)
	}
	var config *rest.Config
	if b.Trusted {
		config, err = trustedConfig(b.Kubeconfig, text)
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

// fingerprint names an access by what it consists of.
func fingerprint(source string, text []byte, config *rest.Config) string {
	sum := sha256.New()
	for _, part := range [][]byte{[]byte(source), text, config.CAData, config.CertData,
		config.KeyData, []byte(config.BearerToken)} {
		own := sha256.Sum256(part)
		sum.Write(own[:])
	}
	return hex.EncodeToString(sum.Sum(nil))
}
