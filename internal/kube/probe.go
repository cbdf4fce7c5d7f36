package kube

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"time"

	"golang.org/x/sys/unix"
	apiversion "k8s.io/apimachinery/pkg/version"
)

// Target is an API server with the credential to try.
type Target struct {
	Server string
	// CA verifies the server, in PEM. If empty, Reach trusts Roots, or the system's CAs if nil.
	CA    []byte
	Roots *x509.CertPool
	Token string // a bearer token; if empty, no credential is tried
	Entra bool   // the token is from Entra ID, and not a bootstrap token
	Name  string // the server's name in messages; "" is the API server
	Options
}

const probeTimeout = 10 * time.Second // bounds each layer of a probe

// Probe tries each layer on the way to the API server - name, connection, proxy, TLS, HTTP,
// credential - and returns the first broken one as a *Fault.
func Probe(ctx context.Context, t Target) error {
	u, err := url.Parse(t.Server)
	if err != nil {
		return fault(LayerHTTP, nil, "correct node.kubelet.serverURL",
			"the server's URL cannot be parsed")
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(t.CA)
	conn, err := t.open(ctx, u, &tls.Config{RootCAs: pool})
	if err != nil {
		return err
	}
	defer conn.Close()
	return t.ask(ctx, conn, u)
}

func hostPort(u *url.URL) string {
	port := cmp.Or(u.Port(), map[string]string{"https": "443", "http": "80"}[u.Scheme])
	return net.JoinHostPort(u.Hostname(), port)
}

// open connects to the server, through its proxy if any, and starts TLS unless secure is nil.
func (t Target) open(
	ctx context.Context, server *url.URL, secure *tls.Config,
) (*http.ClientConn, error) {
	way := &http.Transport{
		DialContext: t.connectServer, OnProxyConnectResponse: proxyFault, TLSClientConfig: secure,
		TLSHandshakeTimeout: probeTimeout, ResponseHeaderTimeout: probeTimeout, DisableCompression: true,
	}
	via, err := t.via(server)
	if err != nil {
		return nil, fault(LayerProxy, nil, "correct proxy.https", "the proxy's URL cannot be used")
	}
	if via != nil {
		way.DialContext = t.connectProxy(via)
		way.Proxy = http.ProxyURL(&url.URL{Scheme: "http", User: via.User, Host: hostPort(via)})
	}
	scheme, secured := "http", false
	if secure != nil {
		scheme, secure.NextProtos = "https", []string{"http/1.1"}
	}
	ctx, cancel := context.WithTimeout(ctx, 2*probeTimeout) // the proxy may take half of it
	defer cancel()
	conn, err := way.NewClientConn(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		TLSHandshakeStart: func() { secured = true },
	}), scheme, hostPort(server))
	f, told := errors.AsType[*Fault](err)
	switch {
	case err == nil:
		return conn, nil
	case told:
		return nil, f
	case secured:
		return nil, t.tlsFault(err, server.Hostname())
	case via != nil:
		return nil, fault(LayerProxy, err, "check proxy.https",
			"the server at %s does not answer as a proxy: %v", via.Host, plain(err))
	}
	return nil, fault(LayerTCP, err, "", "the connection broke: %v", err)
}

func (t Target) via(server *url.URL) (*url.URL, error) {
	if t.Proxy == nil {
		return nil, nil
	}
	return t.Proxy(&http.Request{URL: server})
}

func (t Target) connectServer(ctx context.Context, _, address string) (net.Conn, error) {
	name, remedy := t.Name, "check the network and the firewall between this machine and that server"
	if name == "" {
		name, remedy = "the API server", "check node.kubelet.serverURL, the network and the firewall "+
			"between this machine and the cluster"
	}
	return t.connect(ctx, address, LayerTCP, name, remedy)
}

func (t Target) connectProxy(via *url.URL) Dial {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		conn, err := t.connect(ctx, address, LayerProxy, "the proxy",
			"check proxy.https and whether the proxy is up")
		if err == nil && via.Scheme == "https" {
			conn = tls.Client(conn, &tls.Config{ServerName: via.Hostname()})
		}
		return conn, err
	}
}

func (t Target) connect(ctx context.Context, address string, layer Layer,
	what, remedy string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	dial := t.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	conn, err := dial(ctx, "tcp", address)
	dns, unresolved := errors.AsType[*net.DNSError](err)
	switch {
	case err == nil:
		return conn, nil
	case unresolved:
		host, _, _ := net.SplitHostPort(address)
		said := "the name of %s, %s, does not resolve"
		if !dns.IsNotFound {
			said = "no DNS server answers for the name of %s, %s"
		}
		return nil, fault(LayerDNS, err, "check the name, and the DNS servers of this machine "+
			"(resolvectl status)", said, what, host)
	case errors.Is(err, unix.ECONNREFUSED):
		return nil, fault(layer, err, remedy, "connection to %s at %s refused", what, address)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, unix.ETIMEDOUT):
		return nil, fault(layer, err, remedy, "%s at %s does not answer within %s", what, address,
			probeTimeout)
	}
	return nil, fault(layer, err, remedy, "cannot connect to %s at %s: %v", what, address, plain(err))
}

// plain drops the operation and addresses that a network error repeats.
func plain(err error) error {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e.Err
	}
	return err
}

// proxyFault checks a proxy's answer to CONNECT (RFC 9110).
func proxyFault(_ context.Context, via *url.URL, asked *http.Request, r *http.Response) error {
	switch r.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusProxyAuthRequired:
		return fault(LayerProxy, nil, "put them into proxy.https: http://user:password@host:port",
			"the proxy at %s requires a user and password (407)", via.Host)
	}
	return fault(LayerProxy, nil,
		"ask the operator of the proxy to allow it, or add the host to proxy.noProxy",
		"the proxy at %s does not allow connections to %s (%s)", via.Host, asked.Host, r.Status)
}

func (t Target) tlsFault(err error, name string) *Fault {
	if t.Name != "" { // the advice below is about the API server
		return fault(LayerTLS, err, "", "the handshake for %s failed: %v", t.Name, plain(err))
	}
	unknown, untrusted := errors.AsType[x509.UnknownAuthorityError](err)
	other, misnamed := errors.AsType[x509.HostnameError](err)
	invalid, _ := errors.AsType[x509.CertificateInvalidError](err)
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case untrusted:
		f := fault(LayerTLS, err, "check node.kubelet.caCertData; if the issuer is your proxy, it "+
			"inspects TLS: exempt the API server from that",
			"the API server's certificate was not issued by the cluster's CA")
		if unknown.Cert != nil {
			f.Message += fmt.Sprintf(" (its issuer is %q)", unknown.Cert.Issuer.String())
		}
		return f
	case misnamed:
		return fault(LayerTLS, err, "check node.kubelet.serverURL",
			"the server at %s has a certificate for other names: %v", name, other)
	case invalid.Reason == x509.Expired:
		return fault(LayerTLS, err, "check this machine's clock (timedatectl)",
			"the API server's certificate is not valid at this machine's time, %s UTC",
			time.Now().UTC().Format(time.DateTime))
	case noTLS:
		return fault(LayerTLS, err, "check host and port of node.kubelet.serverURL",
			"the server at %s does not speak TLS", name)
	}
	return fault(LayerTLS, err, "something between this machine and the cluster may cut TLS "+
		"connections: check firewall and proxy", "the TLS handshake with %s failed: %v", name, plain(err))
}

// ask requests the version, which every caller may read but one with an invalid credential.
func (t Target) ask(ctx context.Context, conn *http.ClientConn, u *url.URL) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	at := u.JoinPath("/version").String()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return fault(LayerHTTP, nil, "correct node.kubelet.serverURL", "the server's URL cannot be used")
	}
	if t.Token != "" {
		request.Header.Set("Authorization", "Bearer "+t.Token)
	}
	request.Header.Set("User-Agent", "aks-flex-node")
	response, err := conn.RoundTrip(request)
	if err != nil {
		return fault(LayerHTTP, err, "check the state of the cluster",
			"the API server does not answer: %v", plain(err))
	}
	defer response.Body.Close()
	return t.judge(response)
}

func (t Target) judge(response *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return fault(LayerHTTP, err, "", "the API server's answer broke off: %v", plain(err))
	}
	var is apiversion.Info
	switch {
	case response.StatusCode == http.StatusUnauthorized && t.Token != "":
		return t.unauthorized()
	case response.StatusCode == http.StatusUnauthorized, // it refuses callers without a credential
		response.StatusCode == http.StatusForbidden: // and knows who is forbidden
		return nil
	case response.StatusCode >= 500:
		return fault(LayerHTTP, nil, "try again; if it does not pass, check the state of the cluster",
			"the API server has an internal problem (%s)", response.Status)
	case response.StatusCode != http.StatusOK, json.Unmarshal(body, &is) != nil, is.Minor == "":
		return fault(LayerHTTP, nil, "check node.kubelet.serverURL",
			"what answers at %s is not a Kubernetes API server (%s)", t.Server, response.Status)
	}
	return nil
}

func (t Target) unauthorized() *Fault {
	what, remedy := "the bootstrap token", "it has expired or been revoked: ask the cluster's "+
		"operator for a new one"
	if t.Entra {
		what, remedy = "the identity's token of Entra ID", "the cluster must use Entra ID (az aks "+
			"update --enable-aad) and belong to the same tenant; check this "+
			"machine's clock too (timedatectl)"
	}
	return fault(LayerAuth, ErrUnauthorized, remedy, "the API server does not accept %s (401)", what)
}

// Layer is the broken part of the way from this machine to the API server.
type Layer string

// The layers, from the machine outwards.
const (
	LayerDNS   Layer = "DNS"
	LayerTCP   Layer = "TCP"
	LayerProxy Layer = "proxy"
	LayerTLS   Layer = "TLS"
	LayerHTTP  Layer = "HTTP"
	LayerAuth  Layer = "authentication"
)

// Fault describes one broken layer, and what to do or whom to ask.
type Fault struct {
	Layer           Layer
	Message, Remedy string
	Err             error // the cause, if any, which Message describes
}

func fault(layer Layer, err error, remedy, format string, args ...any) *Fault {
	return &Fault{Layer: layer, Message: fmt.Sprintf(format, args...), Remedy: remedy, Err: err}
}

func (f *Fault) Error() string {
	text := string(f.Layer) + ": " + f.Message
	if f.Remedy != "" {
		text += "; " + f.Remedy
	}
	return text
}

func (f *Fault) Unwrap() error { return f.Err }

// Rebind reports whether an error may mean that the API server has a new address or CA: its name
// does not resolve, or its certificate is not trusted. The caller can then look up both again. It
// handles a *Fault of Probe and the errors of a Client.
func Rebind(err error) bool {
	_, unresolved := errors.AsType[*net.DNSError](err)
	_, untrusted := errors.AsType[x509.UnknownAuthorityError](err)
	_, misnamed := errors.AsType[x509.HostnameError](err)
	return unresolved || untrusted || misnamed
}
