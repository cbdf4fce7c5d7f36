package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// Reached holds a server's answers to a caller without a credential.
type Reached struct {
	Proxy string `json:"proxy,omitempty"` // the host of the proxy, if any
	// Issuer and NotAfter are from the server's certificate.
	Issuer   string    `json:"issuer,omitempty"`
	NotAfter time.Time `json:"notAfter,omitzero"`
	// Ahead is the lead of the server's clock over this machine's; nil if the server sends no time.
	Ahead     *time.Duration `json:"-"`
	SmallOnly bool           `json:"-"` // only small segments are answered: larger packets are lost
}

const smallSegment = 536 // a segment that fits through every network (RFC 9293, 3.7.1)

// Reach tries to reach a server, as Probe does, without a credential. An untrusted certificate is
// an error, but the server is still asked for its time. Without CA certificates, the system's are
// trusted. An http server is only connected to. A silent server is tried again, for as long.
func Reach(ctx context.Context, t Target) (Reached, error) {
	u, err := url.Parse(t.Server)
	if err != nil || u.Host == "" {
		return Reached{}, &Fault{Layer: LayerHTTP, Message: "the server's URL cannot be parsed"}
	}
	var r Reached
	if via, err := t.via(u); err == nil && via != nil {
		r.Proxy = via.Host
	}
	began := time.Now()
	err = t.reach(ctx, u, &r)
	if late(err) && u.Scheme == "https" && r.Proxy == "" && t.Dial == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Since(began))
		defer cancel()
		t.Dial = (&net.Dialer{Control: smallSegments}).DialContext
		r.SmallOnly = t.reach(ctx, u, &Reached{}) == nil
	}
	return r, err
}

func (t Target) reach(ctx context.Context, u *url.URL, r *Reached) error {
	var distrust error
	var secure *tls.Config
	if u.Scheme == "https" {
		secure = &tls.Config{
			InsecureSkipVerify: true, // VerifyConnection verifies, but still allows requesting the time
			VerifyConnection: func(s tls.ConnectionState) error {
				leaf := s.PeerCertificates[0]
				r.Issuer, r.NotAfter = leaf.Issuer.String(), leaf.NotAfter
				distrust = t.verify(s.PeerCertificates, u.Hostname())
				return nil
			},
		}
	}
	conn, err := t.open(ctx, u, secure)
	if err != nil {
		return err
	}
	defer conn.Close()
	if secure != nil {
		r.Ahead = ahead(ctx, conn, u)
	}
	if distrust != nil {
		distrust = fmt.Errorf("%w (its issuer is %q)", distrust, r.Issuer)
		return t.tlsFault(distrust, u.Hostname())
	}
	return nil
}

func (t Target) verify(chain []*x509.Certificate, name string) error {
	o := x509.VerifyOptions{DNSName: name, Roots: t.Roots, Intermediates: x509.NewCertPool()}
	if len(t.CA) > 0 {
		o.Roots = x509.NewCertPool()
		o.Roots.AppendCertsFromPEM(t.CA)
	}
	for _, c := range chain[1:] {
		o.Intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(o)
	return err
}

// ahead requests a server's time (RFC 9110, Date), which has whole seconds.
func ahead(ctx context.Context, conn *http.ClientConn, u *url.URL) *time.Duration {
	request := &http.Request{
		Method: http.MethodHead, URL: &url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/"},
		Header: http.Header{"User-Agent": {"aks-flex-node"}},
	}
	asked := time.Now()
	response, err := conn.RoundTrip(request.WithContext(ctx))
	if err != nil {
		return nil
	}
	response.Body.Close()
	date, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return nil
	}
	return new(date.Sub(asked.Add(time.Since(asked) / 2)).Round(time.Second))
}

// late reports whether a server or proxy accepted the connection and then stayed silent.
func late(err error) bool {
	f, ok := errors.AsType[*Fault](err)
	if !ok || f.Layer != LayerTLS {
		return false
	}
	timeout, ok := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || ok && timeout.Timeout()
}

// smallSegments makes both sides of a connection send only small segments.
func smallSegments(_, _ string, raw syscall.RawConn) (err error) {
	failed := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, smallSegment)
	})
	return errors.Join(failed, err)
}

const serviceTimeout = 3 * time.Second // bounds a connection to a Service

// Services holds the results of connecting to the cluster's own Services from the machine.
type Services struct {
	Tried []Connection
	DNS   string // the address of the cluster's DNS Service; "" if unknown
}

// Connection is an attempt to connect to a Service.
type Connection struct {
	Service, Address string // its name, Address its ClusterIP and port
	Err              error
}

// TryServices connects from this machine to the cluster's own Services: to the API server's, and to
// DNS over TCP, at the address that pods use. It sends nothing. A nil dial uses the network.
func (c *Client) TryServices(ctx context.Context, dns string, dial Dial) (Services, error) {
	api, err := c.Service(ctx, "default", "kubernetes")
	if err != nil {
		return Services{}, err
	}
	names, err := c.Service(ctx, "kube-system", "kube-dns")
	if err != nil && !NodeMissing(err) { // DNS may have another name
		return Services{}, err
	}
	found := Services{DNS: names.Spec.ClusterIP, Tried: []Connection{
		{Service: "default/kubernetes", Address: addressOf(api)},
		{Service: "DNS", Address: net.JoinHostPort(dns, "53")},
	}}
	var all sync.WaitGroup
	for i := range found.Tried {
		all.Go(func() { found.Tried[i].Err = connect(ctx, dial, found.Tried[i].Address) })
	}
	all.Wait()
	return found, nil
}

func addressOf(s corev1.Service) string {
	port := int32(443)
	if len(s.Spec.Ports) > 0 {
		port = s.Spec.Ports[0].Port
	}
	return net.JoinHostPort(s.Spec.ClusterIP, strconv.Itoa(int(port)))
}

func connect(ctx context.Context, dial Dial, address string) error {
	ctx, cancel := context.WithTimeout(ctx, serviceTimeout)
	defer cancel()
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}
