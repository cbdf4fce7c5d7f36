// Package kube is what the agent asks of Kubernetes: its Node, its pods, its certificate requests, and, when there is no answer or the Node
// does not become Ready, which layer is broken and what to do. It uses client-go's REST client with the three API groups that are
// needed (docs/decisions/0002-kubernetes-client.md). It changes nothing on this machine; package agent calls it.
package kube

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// requestTimeout bounds one request that is not a watch.
const requestTimeout = 30 * time.Second

// Proxy chooses the proxy of a request, as http.Transport.Proxy does: nil means none. The environment is never asked.
type Proxy = func(*http.Request) (*url.URL, error)

// Client asks one API server with one credential. Its errors are or wrap a *Fault when the server was not reached, and an API status
// otherwise. It is safe for concurrent use.
type Client struct {
	rest  *rest.RESTClient
	http  *http.Client
	close func()
	retry backoff
}

// FromKubeconfig returns a client with the current context of a kubeconfig: a client certificate (whose file may be replaced at any
// time, as kubelet does), a token, a token file or an exec plugin. A kubeconfig that turns the verification of the server off
// is refused. proxy nil leaves the kubeconfig's own proxy-url, if any.
func FromKubeconfig(path string, proxy Proxy) (*Client, error) {
	cfg, err := loadKubeconfig(path)
	if err != nil {
		return nil, err
	}
	return newClient(cfg, proxy)
}

// FromToken returns a client with a bearer token. server is an https URL, ca is PEM; without ca the system's authorities are trusted.
func FromToken(server string, ca []byte, token string, proxy Proxy) (*Client, error) {
	return newClient(tokenConfig(server, ca, token), proxy)
}

func tokenConfig(server string, ca []byte, token string) *rest.Config {
	return &rest.Config{Host: server, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// errKubeconfig stands for the parser's own error, which may quote a secret.
var errKubeconfig = errors.New("it is not a valid kubeconfig")

func loadKubeconfig(path string) (*rest.Config, error) {
	file, err := clientcmd.LoadFromFile(path)
	if err != nil {
		if _, ok := errors.AsType[*fs.PathError](err); !ok {
			err = errKubeconfig
		}
		return nil, fmt.Errorf("cannot read kubeconfig %s: %w", path, err)
	}
	if err := clientcmd.ResolveLocalPaths(file); err != nil {
		return nil, fmt.Errorf("cannot read kubeconfig %s: %w", path, err)
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*file, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("cannot use kubeconfig %s: %w", path, err)
	}
	return cfg, nil
}

func newClient(cfg *rest.Config, proxy Proxy) (*Client, error) {
	if proxy == nil {
		proxy = cfg.Proxy
	}
	rt, err := newTransport(cfg, proxy)
	if err != nil {
		return nil, err
	}
	wrapped, err := rest.HTTPWrappersForConfig(cfg, rt)
	if err != nil {
		return nil, fmt.Errorf("cannot use the credential for %s: %w", cfg.Host, err)
	}
	// A redirect would carry the credential to wherever it points.
	last := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client := &http.Client{Transport: wrapped, CheckRedirect: last}
	ask := &rest.Config{
		Host:           cfg.Host,
		APIPath:        "/api",
		ContentConfig:  rest.ContentConfig{GroupVersion: &corev1.SchemeGroupVersion, NegotiatedSerializer: codecs()},
		WarningHandler: rest.NoWarnings{},
		QPS:            -1,
	}
	rc, err := rest.RESTClientForConfigAndClient(ask, client)
	if err != nil {
		return nil, fmt.Errorf("cannot use the API server %s: %w", cfg.Host, err)
	}
	return &Client{rest: rc, http: client, close: rt.close, retry: defaultBackoff}, nil
}

// codecs knows the three API groups that are used; client-go's own scheme holds all of them, which costs 12 MiB.
func codecs() runtime.NegotiatedSerializer {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, policyv1.AddToScheme, certificatesv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic("internal error: " + err.Error())
		}
	}
	return serializer.NewCodecFactory(scheme).WithoutConversion()
}

// Close drops the connections that are kept open. The client can still be used; it then connects anew.
func (c *Client) Close() { c.close() }

// NotFound tells whether err says that the object does not exist.
func NotFound(err error) bool { return apierrors.IsNotFound(err) }

// brief bounds one request.
func brief(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, requestTimeout)
}

// plain takes off what net/http wraps around a fault: the URL says nothing that the fault does not.
func plain(err error) error {
	if fault, ok := errors.AsType[*Fault](err); ok {
		return fault
	}
	return err
}
