package kube

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Target is an API server and the credential to try there.
type Target struct {
	Server string
	// CA holds the PEM certificates that the server is verified with.
	CA []byte
	// Token is a bearer token; without one the credential is not tried.
	Token string
	// Entra tells that the token is one of Entra ID rather than a bootstrap token.
	Entra bool
	// Name is what the server is called in messages; "" is the API server.
	Name string
	Options
}

// name is what the server is called, and what is to be checked where it cannot be reached.
func (t Target) name() (name, remedy string) {
	if t.Name == "" {
		return "the API server", "check node.kubelet.serverURL, the network and the firewall between " +
			"this machine and the cluster"
	}
	return t.Name, "check the network and the firewall between this machine and that server"
}

// probeTimeout bounds each layer of a probe.
const probeTimeout = 10 * time.Second

// Probe goes the way to the API server layer by layer - name, connection, proxy, TLS, HTTP,
// credential - and returns the first that is broken as a *Fault.
func Probe(ctx context.Context, t Target) error {
	u, err := url.Parse(t.Server)
	if err != nil {
		return &Fault{
			Layer:   LayerHTTP,
			Message: "the server's URL cannot be parsed",
			Remedy:  "correct node.kubelet.serverURL",
		}
	}
	conn, err := t.dial(ctx, u)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	secure, err := t.handshake(ctx, conn, u.Hostname())
	if err != nil {
		return err
	}
	return t.ask(ctx, secure, u)
}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// dial opens a connection to the server, through the proxy if there is one for it.
func (t Target) dial(ctx context.Context, server *url.URL) (net.Conn, error) {
	via := (*url.URL)(nil)
	if t.Proxy != nil {
		p, err := t.Proxy(&http.Request{URL: server})
		if err != nil {
			return nil, &Fault{
				Layer: LayerProxy, Message: "the proxy's URL cannot be used",
				Remedy: "correct proxy.https",
			}
		}
		via = p
	}
	if via == nil {
		name, remedy := t.name()
		return t.connect(ctx, hostPort(server), LayerTCP, name, remedy)
	}
	conn, err := t.connect(ctx, hostPort(via), LayerProxy, "the proxy",
		"check proxy.https and whether the proxy is up")
	if err != nil {
		return nil, err
	}
	if via.Scheme == "https" {
		conn = tls.Client(conn, &tls.Config{ServerName: via.Hostname()})
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := tunnel(ctx, conn, hostPort(server), via); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
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
	if err == nil {
		return conn, nil
	}
	host, _, _ := net.SplitHostPort(address)
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		f := &Fault{
			Layer:   LayerDNS,
			Message: fmt.Sprintf("the name of %s, %s, does not resolve", what, host),
			Remedy:  "check the name, and the DNS servers of this machine (resolvectl status)",
			hidden:  err,
		}
		if !dns.IsNotFound {
			f.Message = fmt.Sprintf("no DNS server answers for the name of %s, %s", what, host)
		}
		return nil, f
	}
	f := &Fault{Layer: layer, Remedy: remedy, hidden: err}
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		f.Message = fmt.Sprintf("nothing accepts connections to %s at %s", what, address)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, unix.ETIMEDOUT):
		f.Message = fmt.Sprintf("%s at %s does not answer within %s", what, address, probeTimeout)
	default:
		f.Message, f.Err = fmt.Sprintf("cannot connect to %s at %s", what, address), plain(err)
	}
	return nil, f
}

// plain drops the operation and addresses that a network error repeats.
func plain(err error) error {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e.Err
	}
	return err
}

// tunnel asks a proxy for a connection (RFC 9110, CONNECT). The caller closes it when ctx ends.
func tunnel(ctx context.Context, conn net.Conn, address string, via *url.URL) error {
	if err := conn.SetDeadline(time.Now().Add(probeTimeout)); err != nil {
		return &Fault{Layer: LayerProxy, Message: "the connection broke", Err: err}
	}
	request := "CONNECT " + address + " HTTP/1.1\r\nHost: " + address + "\r\n"
	if via.User != nil {
		password, _ := via.User.Password()
		pair := base64.StdEncoding.EncodeToString([]byte(via.User.Username() + ":" + password))
		request += "Proxy-Authorization: Basic " + pair + "\r\n"
	}
	_, err := io.WriteString(conn, request+"\r\n")
	var response *http.Response
	if err == nil {
		connect := &http.Request{Method: http.MethodConnect}
		response, err = http.ReadResponse(bufio.NewReader(conn), connect)
	}
	if err != nil {
		return &Fault{
			Layer:   LayerProxy,
			Message: "the proxy at " + via.Host + " does not answer as a proxy",
			Remedy:  "check proxy.https",
			Err:     cmp.Or(ctx.Err(), plain(err)),
		}
	}
	switch response.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusProxyAuthRequired:
		return &Fault{
			Layer:   LayerProxy,
			Message: "the proxy at " + via.Host + " wants a user and password (407)",
			Remedy:  "put them into proxy.https: http://user:password@host:port",
		}
	default:
		return &Fault{
			Layer: LayerProxy,
			Message: fmt.Sprintf("the proxy at %s does not let us reach %s (%s)", via.Host, address,
				response.Status),
			Remedy: "ask who runs the proxy to allow it, or add the host to proxy.noProxy",
		}
	}
}

// handshake makes the connection secure and verifies the server.
func (t Target) handshake(ctx context.Context, conn net.Conn, name string) (*tls.Conn, error) {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(t.CA)
	secure := tls.Client(conn, &tls.Config{
		RootCAs: pool, ServerName: name, NextProtos: []string{"http/1.1"},
	})
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, &Fault{Layer: LayerTCP, Message: "the connection broke", Err: err}
	}
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, tlsFault(err, name)
	}
	return secure, nil
}

func tlsFault(err error, name string) *Fault {
	f := &Fault{Layer: LayerTLS, hidden: err}
	if unknown, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		f.Message = "the API server's certificate was not issued by the cluster's CA"
		if unknown.Cert != nil {
			f.Message += fmt.Sprintf(" (its issuer is %q)", unknown.Cert.Issuer.String())
		}
		f.Remedy = "check node.kubelet.caCertData; if the issuer is your proxy, it inspects TLS: " +
			"exempt the API server from that"
		return f
	}
	if host, ok := errors.AsType[x509.HostnameError](err); ok {
		f.Message = fmt.Sprintf("the server at %s has a certificate for other names: %s", name,
			strings.Join(host.Certificate.DNSNames, ", "))
		f.Remedy = "check node.kubelet.serverURL"
		return f
	}
	invalid, ok := errors.AsType[x509.CertificateInvalidError](err)
	if ok && invalid.Reason == x509.Expired {
		f.Message = "the API server's certificate is not valid at this machine's time, " +
			time.Now().UTC().Format(time.DateTime) + " UTC"
		f.Remedy = "check this machine's clock (timedatectl)"
		return f
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		f.Message = "the server at " + name + " does not speak TLS"
		f.Remedy = "check host and port of node.kubelet.serverURL"
		return f
	}
	f.Message, f.Err = "the TLS handshake with "+name+" failed", plain(err)
	f.Remedy = "something between this machine and the cluster may cut TLS connections: check " +
		"firewall and proxy"
	return f
}

// ask makes one request with the credential. Everybody may ask for the version, and whoever shows a
// credential that is not accepted is refused all the same.
func (t Target) ask(ctx context.Context, conn net.Conn, u *url.URL) error {
	if err := conn.SetDeadline(time.Now().Add(probeTimeout)); err != nil {
		return &Fault{Layer: LayerTCP, Message: "the connection broke", Err: err}
	}
	at := u.JoinPath("/version").String()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return &Fault{
			Layer: LayerHTTP, Message: "the server's URL cannot be used",
			Remedy: "correct node.kubelet.serverURL",
		}
	}
	if t.Token != "" {
		request.Header.Set("Authorization", "Bearer "+t.Token)
	}
	request.Header.Set("User-Agent", "aks-flex-node")
	if err := request.Write(conn); err != nil {
		return &Fault{Layer: LayerHTTP, Message: "the connection broke", Err: plain(err)}
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		return &Fault{
			Layer: LayerHTTP, Message: "the API server does not answer", Err: plain(err),
			Remedy: "check the state of the cluster",
		}
	}
	defer response.Body.Close()
	return t.judge(response)
}

func (t Target) judge(response *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return &Fault{
			Layer: LayerHTTP, Message: "the API server's answer broke off", Err: plain(err),
		}
	}
	var version struct {
		Minor string `json:"minor"`
	}
	switch {
	case response.StatusCode == http.StatusUnauthorized && t.Token == "":
		return nil // it is an API server, and lets nobody in without a credential
	case response.StatusCode == http.StatusUnauthorized:
		return t.unauthorized()
	case response.StatusCode == http.StatusForbidden:
		return nil // whoever is forbidden something has been recognised
	case response.StatusCode >= 500:
		return &Fault{
			Layer:   LayerHTTP,
			Message: "the API server has a problem of its own (" + response.Status + ")",
			Remedy:  "try again; if it does not pass, check the state of the cluster",
		}
	case response.StatusCode != http.StatusOK, json.Unmarshal(body, &version) != nil,
		version.Minor == "":
		return &Fault{
			Layer: LayerHTTP,
			Message: "what answers at " + t.Server + " is not a Kubernetes API server (" +
				response.Status + ")",
			Remedy: "check node.kubelet.serverURL",
		}
	}
	return nil
}

func (t Target) unauthorized() *Fault {
	f := &Fault{Layer: LayerAuth, hidden: ErrUnauthorized}
	if t.Entra {
		f.Message = "the API server does not accept the identity's token of Entra ID (401)"
		f.Remedy = "the cluster must use Entra ID (az aks update --enable-aad) and belong to the " +
			"same tenant; check this machine's clock too (timedatectl)"
		return f
	}
	f.Message = "the API server does not accept the bootstrap token (401)"
	f.Remedy = "it has expired or been revoked: ask the cluster's operator for a new one"
	return f
}

// Layer is where the way from this machine to the API server is broken.
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

// Fault is one broken layer: what is wrong, and what to do or whom to ask.
type Fault struct {
	Layer   Layer
	Message string
	Remedy  string
	Err     error
	// hidden is a cause that Message has already put into words.
	hidden error
}

// Error tells layer, message, cause and remedy.
func (f *Fault) Error() string {
	text := string(f.Layer) + ": " + f.Message
	if f.Err != nil {
		text += ": " + f.Err.Error()
	}
	if f.Remedy != "" {
		text += "; " + f.Remedy
	}
	return text
}

// Unwrap returns the cause.
func (f *Fault) Unwrap() error {
	if f.Err != nil {
		return f.Err
	}
	return f.hidden
}

// Rebind reports whether an error may mean that the API server has another address or another CA
// than we know: its name does not resolve, or its certificate is not trusted. Whoever gave us
// address and CA can be asked again. It understands a *Fault of Probe and the errors of a Client.
func Rebind(err error) bool {
	if f, ok := errors.AsType[*Fault](err); ok && f.Layer == LayerDNS {
		return true
	}
	_, unresolved := errors.AsType[*net.DNSError](err)
	_, untrusted := errors.AsType[x509.UnknownAuthorityError](err)
	_, misnamed := errors.AsType[x509.HostnameError](err)
	return unresolved || untrusted || misnamed
}
