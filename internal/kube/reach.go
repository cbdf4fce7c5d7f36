package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Reached holds a server's answers to a caller without a credential.
type Reached struct {
	// Proxy is the host of the proxy on the way, "" without one.
	Proxy string `json:"proxy,omitempty"`
	// Issuer and NotAfter are those of the server's certificate.
	Issuer   string    `json:"issuer,omitempty"`
	NotAfter time.Time `json:"notAfter,omitzero"`
	// Ahead is the time by which the server's clock is ahead of this machine's, nil when it does
	// not say.
	Ahead *time.Duration `json:"-"`
	// SmallOnly tells that only small segments are answered: larger packets get lost.
	SmallOnly bool `json:"-"`
}

// smallSegment is a segment that fits through every network (RFC 9293, 3.7.1).
const smallSegment = 536

// Reach goes the way to a server, as Probe does, without any credential. A certificate that is not
// trusted is an error, and the server is asked for its time all the same. Without CA certificates
// those of the system are trusted. An http server is only connected to. A server that is silent is
// tried again, for as long.
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
		small, again := t, Reached{}
		small.Dial = (&net.Dialer{Control: smallSegments}).DialContext
		again.SmallOnly = small.reach(ctx, u, &again) == nil
		r.SmallOnly = again.SmallOnly
	}
	return r, err
}

// reach is one attempt. It fills in as much as it learns.
func (t Target) reach(ctx context.Context, u *url.URL, r *Reached) error {
	var distrust error
	var secure *tls.Config
	if u.Scheme == "https" {
		secure = &tls.Config{
			InsecureSkipVerify: true, // VerifyConnection verifies, and lets the time be asked for
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
		return t.called(tlsFault(distrust, u.Hostname()))
	}
	return nil
}

// called has a fault speak of the server by its name.
func (t Target) called(f *Fault) *Fault {
	if t.Name != "" {
		f.Message, f.Remedy = t.Name+" cannot be trusted: "+f.Error(), ""
		f.hidden, f.Err = errors.Join(f.Err, f.hidden), nil
	}
	return f
}

// verify verifies a server's certificate.
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

// ahead asks a server for its time (RFC 9110, Date), which has whole seconds.
func ahead(ctx context.Context, conn *http.ClientConn, u *url.URL) *time.Duration {
	request := (&http.Request{
		Method: http.MethodHead, URL: &url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/"},
		Header: http.Header{"User-Agent": {"aks-flex-node"}},
	}).WithContext(ctx)
	asked := time.Now()
	response, err := conn.RoundTrip(request)
	if err != nil {
		return nil
	}
	response.Body.Close()
	date, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return nil
	}
	d := date.Sub(asked.Add(time.Since(asked) / 2)).Round(time.Second)
	return &d
}

// late reports whether a server or proxy accepted the connection and then was silent.
func late(err error) bool {
	f, ok := errors.AsType[*Fault](err)
	if !ok || f.Layer != LayerTLS {
		return false
	}
	timeout, ok := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || ok && timeout.Timeout()
}

// smallSegments has both sides of a connection send small segments only.
func smallSegments(_, _ string, raw syscall.RawConn) error {
	var err error
	if controlErr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, smallSegment)
	}); controlErr != nil {
		return controlErr
	}
	return err
}
