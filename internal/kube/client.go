// Package kube is the client of the cluster's API: the Node and its readiness, its lease and its
// pods, cordon and drain, certificate requests, and the caller's identity. Probe finds the broken
// layer between here and the API server. Package health decides what answers mean for a node.
package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// Proxy chooses the proxy of a request; nil means none.
type Proxy = func(*http.Request) (*url.URL, error)

// Dial opens a connection; nil means the network.
type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

// Options hold the settings of connections.
type Options struct {
	Proxy Proxy
	Dial  Dial
}

// Client is a client of one API server with one credential.
type Client struct {
	core  *rest.RESTClient
	watch *rest.RESTClient // core for requests whose duration the caller chooses
	way   http.RoundTripper
}

const requestTimeout = 15 * time.Second // bounds each single request

// FromToken returns a client with a bearer token. ca holds PEM certificates.
func FromToken(server string, ca []byte, token string, o Options) (*Client, error) {
	c := &rest.Config{Host: server, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	c.BearerToken = token
	return newClient(c, nil, o)
}

// FromCertificate returns a client with a client certificate and its key, both in the file pemPath,
// as kubelet keeps its own (pki/kubelet-client-current.pem). Each connection reads the file:
// client-go would watch it with one endless goroutine per client. ca holds PEM certificates.
func FromCertificate(server string, ca []byte, pemPath string, o Options) (*Client, error) {
	load := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(pemPath, pemPath)
		if err != nil {
			return nil, fmt.Errorf("cannot use the client certificate in %s: %w", pemPath, err)
		}
		return &pair, nil
	}
	c := &rest.Config{Host: server, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	return newClient(c, &transport.GetCertHolder{GetCert: load}, o)
}

func newClient(c *rest.Config, certificate *transport.GetCertHolder, o Options) (*Client, error) {
	c.Proxy, c.Dial, c.UserAgent, c.QPS = o.Proxy, o.Dial, "aks-flex-node", -1
	if c.Proxy == nil {
		c.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	}
	var way http.RoundTripper
	config, err := c.TransportConfig()
	if err == nil {
		config.TLS.GetCertHolder = certificate
		way, err = transport.New(config)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for %s: %w", c.Host, err)
	}
	// Reading a hundred pods as JSON takes several times as long.
	c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	c.APIPath, c.GroupVersion, c.NegotiatedSerializer = "/api", &corev1.SchemeGroupVersion, codecs()
	client := &http.Client{Transport: way, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // another server must not get the credential
	}}
	watch, failed := rest.RESTClientForConfigAndClient(c, client)
	bounded := *client
	bounded.Timeout = requestTimeout
	core, err := rest.RESTClientForConfigAndClient(c, &bounded)
	return &Client{core: core, watch: watch, way: way}, errors.Join(err, failed)
}

// codecs decode the types of the API server's answers. A whole group has many times as many.
var codecs = sync.OnceValue(func() runtime.NegotiatedSerializer {
	scheme := runtime.NewScheme()
	add := func(gv schema.GroupVersion, types ...runtime.Object) {
		scheme.AddKnownTypes(gv, types...)
		metav1.AddToGroupVersion(scheme, gv)
	}
	add(corev1.SchemeGroupVersion, &corev1.Node{}, &corev1.PodList{}, &corev1.Service{},
		&metav1.Status{})
	add(authenticationv1.SchemeGroupVersion, &authenticationv1.SelfSubjectReview{})
	add(authorizationv1.SchemeGroupVersion, &authorizationv1.SelfSubjectAccessReview{})
	add(certificatesv1.SchemeGroupVersion, &certificatesv1.CertificateSigningRequestList{})
	add(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{})
	return serializer.NewCodecFactory(scheme).WithoutConversion()
})

// Close closes idle connections.
func (c *Client) Close() { utilnet.CloseIdleConnectionsFor(c.way) }

// get reads an object; doing completes "cannot ...".
func get[T any, P interface {
	*T
	runtime.Object
}](ctx context.Context, r *rest.Request, doing string, args ...any) (object T, err error) {
	if err = r.Do(ctx).Into(P(&object)); err != nil {
		err = fmt.Errorf("cannot %s: %w", fmt.Sprintf(doing, args...), err)
	}
	return object, err
}

// ServerVersion returns the API server's version without "v" and a vendor's suffix, "1.34.4".
func (c *Client) ServerVersion(ctx context.Context) (string, error) {
	body, err := c.core.Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("cannot ask the API server for its version: %w", err)
	}
	var is apiversion.Info
	if err := json.Unmarshal(body, &is); err != nil {
		return "", fmt.Errorf("cannot read the API server's version: %w", err)
	}
	m := regexp.MustCompile(`\Av?(\d+\.\d+\.\d+)`).FindStringSubmatch(is.GitVersion)
	if m == nil {
		return "", fmt.Errorf("cannot read the API server's version: %.40q", is.GitVersion)
	}
	return m[1], nil
}

// ClusterUID returns the uid of the Service default/kubernetes, which identifies the cluster.
func (c *Client) ClusterUID(ctx context.Context) (string, error) {
	s, err := c.Service(ctx, "default", "kubernetes")
	return string(s.UID), err
}

// Lease is a coordination/v1 Lease.
type Lease = coordinationv1.Lease

// Lease returns the lease that kubelet renews every few seconds as a sign of life.
func (c *Client) Lease(ctx context.Context, node string) (Lease, error) {
	request := c.core.Get().AbsPath("/apis/coordination.k8s.io/v1").
		Namespace(corev1.NamespaceNodeLease).Resource("leases").Name(node)
	return get[Lease](ctx, request, "read the lease of Node %s", node)
}

// Service returns a Service. Every node may read Services (ClusterRole system:node).
func (c *Client) Service(ctx context.Context, namespace, name string) (corev1.Service, error) {
	request := c.core.Get().Namespace(namespace).Resource("services").Name(name)
	return get[corev1.Service](ctx, request, "read the Service %s/%s", namespace, name)
}

// Unite merges the certificates of a new CA and the old one, for a cluster that replaces its CA.
func Unite(next, former string) string {
	first := strings.Join(certificates(next), "")
	return first + Without(former, first)
}

// Without returns the certificates of a bundle that are not in other.
func Without(bundle, other string) string {
	known := certificates(other)
	return strings.Join(slices.DeleteFunc(certificates(bundle), func(block string) bool {
		return slices.Contains(known, block)
	}), "")
}

// SharesCA reports whether two bundles have a certificate in common.
func SharesCA(a, b string) bool { return Without(a, b) != strings.Join(certificates(a), "") }

func certificates(bundle string) []string {
	blocks := strings.SplitAfter(strings.TrimSpace(bundle)+"\n", "-----END CERTIFICATE-----\n")
	return blocks[:len(blocks)-1] // the last one has no end
}

// ErrUnauthorized reports that the API server does not accept the credential (401).
var ErrUnauthorized = errors.New("the API server does not accept the credential (401)")

// WhoAmI authenticates with one request and returns the user name that the API server sees
// (SelfSubjectReview); "" if it recognises the caller but does not return the name. The error is
// ErrUnauthorized if the credential is not accepted.
func (c *Client) WhoAmI(ctx context.Context) (string, error) {
	review := &authenticationv1.SelfSubjectReview{}
	err := c.core.Post().AbsPath("/apis/authentication.k8s.io/v1/selfsubjectreviews").Body(review).
		Do(ctx).Into(review)
	switch name := review.Status.UserInfo.Username; {
	case apierrors.IsUnauthorized(err), err == nil && name == anonymous:
		return "", ErrUnauthorized
	case apierrors.IsForbidden(err):
		return "", nil // a forbidden caller has been recognised
	case err != nil:
		return "", fmt.Errorf("cannot prove the credential to the API server: %w", err)
	default:
		return name, nil
	}
}

const anonymous = "system:anonymous" // the user name of a caller without a credential

// Access is an action in a cluster, such as creating nodes.
type Access = authorizationv1.ResourceAttributes

// May reports whether the client may do something (SelfSubjectAccessReview), and why.
func (c *Client) May(ctx context.Context, a Access) (allowed bool, reason string, err error) {
	review := &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a},
	}
	err = c.core.Post().AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").Body(review).
		Do(ctx).Into(review)
	if err != nil {
		return false, "", fmt.Errorf("cannot ask the API server what the identity may do: %w", err)
	}
	return review.Status.Allowed, review.Status.Reason, nil
}

// CSR is a request of kubelet for its client certificate.
type CSR struct {
	Name string
	// State is pending, approved, denied, failed or issued; Reason explains a denied or failed one.
	State, Reason string
}

// CSRs lists the requests for the client certificate of a node, the latest last.
func (c *Client) CSRs(ctx context.Context, node string) ([]CSR, error) {
	request := c.core.Get().AbsPath("/apis/certificates.k8s.io/v1/certificatesigningrequests")
	list, err := get[certificatesv1.CertificateSigningRequestList](ctx, request,
		"list the certificate requests")
	if err != nil {
		return nil, err
	}
	// The API server orders by name, and the names are random.
	slices.SortStableFunc(list.Items, func(a, b certificatesv1.CertificateSigningRequest) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	var found []CSR
	for _, item := range list.Items {
		forKubelet := item.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName
		if forKubelet && subject(item.Spec.Request) == "system:node:"+node {
			found = append(found, csr(item))
		}
	}
	return found, nil
}

func subject(request []byte) string {
	block, _ := pem.Decode(request)
	if block == nil {
		return ""
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return ""
	}
	return parsed.Subject.CommonName
}

func csr(item certificatesv1.CertificateSigningRequest) CSR {
	r := CSR{Name: item.Name, State: "pending"}
	for _, c := range item.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateApproved:
			r.State = "approved"
		case certificatesv1.CertificateDenied:
			return CSR{item.Name, "denied", c.Message}
		case certificatesv1.CertificateFailed:
			return CSR{item.Name, "failed", c.Message}
		}
	}
	if len(item.Status.Certificate) > 0 {
		r.State = "issued"
	}
	return r
}
