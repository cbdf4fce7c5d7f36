// Package kube is what we ask of Kubernetes: the Node and its readiness, cordon and drain, certificate requests; and, when it does
// not answer, which layer between this machine and a Ready Node is broken.
package kube

import (
	"fmt"
	"net/http"
	"net/url"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Proxy chooses the proxy of a request; nil means none.
type Proxy = func(*http.Request) (*url.URL, error)

// Client speaks to one API server with one credential.
type Client struct {
	core, policy, certificates, authorization *rest.RESTClient
	http                                      *http.Client
}

// requestTimeout bounds each single request.
const requestTimeout = 15 * time.Second

// FromKubeconfig reads server and credential from a kubeconfig, as kubelet writes it: a client certificate that is replaced in
// its file is picked up.
func FromKubeconfig(path string, proxy Proxy) (*Client, error) {
	c, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("cannot use %s: %w", path, err)
	}
	return newClient(c, proxy)
}

// FromToken uses a bearer token. CA holds PEM certificates.
func FromToken(server string, ca []byte, token string, proxy Proxy) (*Client, error) {
	return newClient(&rest.Config{Host: server, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}, proxy)
}

func newClient(c *rest.Config, proxy Proxy) (*Client, error) {
	if proxy == nil {
		proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	}
	c.Proxy, c.UserAgent, c.Timeout, c.QPS = proxy, "aks-flex-node", requestTimeout, -1
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for %s: %w", c.Host, err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, policyv1.AddToScheme, certificatesv1.AddToScheme, authorizationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("internal error: %w", err)
		}
	}
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion()
	group := func(path string, gv schema.GroupVersion) *rest.RESTClient {
		gc := rest.CopyConfig(c)
		gc.APIPath, gc.GroupVersion, gc.NegotiatedSerializer = path, &gv, codecs
		rc, groupErr := rest.RESTClientForConfigAndClient(gc, client)
		if groupErr != nil {
			err = fmt.Errorf("cannot make a client for %s: %w", c.Host, groupErr)
		}
		return rc
	}
	k := &Client{
		core:          group("/api", corev1.SchemeGroupVersion),
		policy:        group("/apis", policyv1.SchemeGroupVersion),
		certificates:  group("/apis", certificatesv1.SchemeGroupVersion),
		authorization: group("/apis", authorizationv1.SchemeGroupVersion),
		http:          client,
	}
	return k, err
}

// Close lets go of idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }
