package cluster

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// Connection holds the clients of one cluster for one access. It is immutable: another access makes
// another one, and everything that runs on the old one ends.
type Connection struct {
	// Client has no limit and no timeout of its own, since machines wait for its answers and a watch
	// has no end: requests have a timeout in their contexts.
	Client kubernetes.Interface
	// ServerURL and CA (PEM) are given to nodes.
	ServerURL string
	CA        []byte
	// Version returns the API server's version; nil uses Client. Fakes of client-go cannot.
	Version func(ctx context.Context) (string, error)

	access Access // that the clients are for
	wire   *wire  // nil for fakes of client-go
}

// Doubtful reports whether the API server has refused the credentials, or has shown an unexpected
// certificate.
func (c *Connection) Doubtful() bool { return c.wire != nil && c.wire.doubtful.Load() }

// server returns an identifier of the API server with this uid. It covers the CA that signed its
// certificate, or the CA or URL of the access, since the uid of another API server is no secret.
func (c *Connection) server(uid string) string {
	proved := cmp.Or(string(c.CA), c.ServerURL)
	if c.wire != nil {
		if root := c.wire.root.Load(); root != nil {
			proved = *root
		}
	}
	sum := sha256.Sum256([]byte(proved + "\n" + uid))
	return hex.EncodeToString(sum[:16])
}

// requestTimeout limits one request to a cluster, but not a watch.
const requestTimeout = 10 * time.Second

// effectTimeout limits one request that changes something in a cluster. It ends before another
// replica can own the cluster. A request that was cut short may have succeeded: a retry finds that.
const effectTimeout = store.OwnerMargin

// Dial returns the clients of an access. It makes no request.
func Dial(a Access) (*Connection, error) {
	base := rest.CopyConfig(a.Config)
	base.UserAgent = "flexnode-rp"
	// Typed clients prefer protobuf, whose size in memory cannot be limited while it is read.
	base.ContentType, base.AcceptContentTypes = "application/json", "application/json"
	if base.TLSClientConfig.CAFile != "" || base.BearerTokenFile != "" || base.ExecProvider != nil {
		return nil, errors.New("internal error: an access that names files or a program")
	}
	wire, err := newWire(a)
	if err != nil {
		return nil, fmt.Errorf("cannot use the kubeconfig: %w", err)
	}
	transport, err := rest.HTTPWrappersForConfig(base, wire)
	if err != nil {
		return nil, fmt.Errorf("cannot use the kubeconfig: %w", err)
	}
	base.QPS = -1
	client, err := kubernetes.NewForConfigAndClient(base, &http.Client{Transport: transport})
	if err != nil {
		return nil, fmt.Errorf("cannot use the kubeconfig: %w", err)
	}
	return &Connection{Client: client, ServerURL: base.Host, CA: base.CAData, wire: wire}, nil
}
