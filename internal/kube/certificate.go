package kube

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"
)

// tlsFault says why there is no TLS with addr.
func (d *dialer) tlsFault(ctx context.Context, addr string, err error) *Fault {
	f := &Fault{Layer: LayerTLS, Err: err}
	refusal, refused := errors.AsType[*tls.CertificateVerificationError](err)
	alert, alerted := errors.AsType[tls.AlertError](err)
	_, garbage := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case refused && len(refusal.UnverifiedCertificates) > 0:
		d.certificateFault(ctx, f, addr, refusal)
	case garbage:
		f.Message = addr + " answers, but not with TLS"
		f.Remedy = "check the port in node.kubelet.serverURL"
	case isTimeout(err) || errors.Is(err, context.DeadlineExceeded):
		f.Message = "the TLS handshake with " + addr + " gets no answer"
		f.Remedy = "a firewall or VPN seems to drop large packets or to inspect TLS: lower the MTU (ip link set mtu), or exempt the address"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		f.Message = addr + " cuts the connection during the TLS handshake"
		f.Remedy = "a firewall that inspects TLS seems to refuse the name: exempt it; else check the port in node.kubelet.serverURL"
	case alerted:
		f.Message = fmt.Sprintf("%s refuses the TLS handshake: %v", addr, alert)
		f.Remedy = "check host and port in node.kubelet.serverURL"
	default:
		f.Message = fmt.Sprintf("the TLS handshake with %s fails: %v", addr, err)
		f.Remedy = "check node.kubelet.serverURL and node.kubelet.caCertData"
	}
	return f
}

// certificateFault says what is wrong with the certificate that addr shows.
func (d *dialer) certificateFault(ctx context.Context, f *Fault, addr string, err *tls.CertificateVerificationError) {
	leaf := err.UnverifiedCertificates[0]
	invalid, isInvalid := errors.AsType[x509.CertificateInvalidError](err)
	_, isName := errors.AsType[x509.HostnameError](err)
	_, isUnknown := errors.AsType[x509.UnknownAuthorityError](err)
	switch {
	case isInvalid && invalid.Reason == x509.Expired:
		d.dateFault(ctx, f, addr, invalid.Cert)
	case isName:
		f.Message = fmt.Sprintf("the certificate of %s is for %s, not for %s", addr, names(leaf), d.tls.ServerName)
		f.Remedy = "use one of these names in node.kubelet.serverURL"
	case isUnknown:
		d.authorityFault(f, addr, err.UnverifiedCertificates)
	default:
		f.Message = fmt.Sprintf("the certificate of %s is not accepted: %v", addr, err.Err)
		f.Remedy = "check node.kubelet.serverURL and node.kubelet.caCertData"
	}
}

// authorityFault tells an interception from another cluster, by the name of the authority that issued what was shown.
func (d *dialer) authorityFault(f *Fault, addr string, shown []*x509.Certificate) {
	issuer := shown[len(shown)-1].Issuer.String()
	if len(d.ca) == 0 {
		f.Message = fmt.Sprintf("the certificate of %s was issued by %q, which this system does not trust", addr, issuer)
		f.Remedy = "set node.kubelet.caCertData to the cluster's CA"
		return
	}
	var wanted []string
	for _, ca := range d.ca {
		wanted = append(wanted, fmt.Sprintf("%q", ca.Subject.String()))
	}
	if slices.Contains(wanted, fmt.Sprintf("%q", issuer)) {
		f.Message = fmt.Sprintf("the certificate of %s was issued by another CA of the same name, %q", addr, issuer)
		f.Remedy = "node.kubelet.caCertData is that of another cluster or out of date: take the cluster's current CA"
		return
	}
	f.Message = fmt.Sprintf("the certificate of %s was issued by %q, not by the cluster's CA %s", addr, issuer, strings.Join(wanted, " or "))
	f.Remedy = "if something on the way inspects TLS, exempt the address from it; else take the right node.kubelet.caCertData"
}

// dateFault tells a wrong clock from an expired certificate, by the date that the server gives.
func (d *dialer) dateFault(ctx context.Context, f *Fault, addr string, cert *x509.Certificate) {
	now := time.Now()
	if d.tls.Time != nil {
		now = d.tls.Time()
	}
	span := fmt.Sprintf("the certificate of %s (%s) is valid from %s to %s", addr, cert.Subject, stamp(cert.NotBefore), stamp(cert.NotAfter))
	clock := "set the clock (timedatectl set-ntp true)"
	if there, err := d.date(ctx, addr); err == nil {
		f.Message = fmt.Sprintf("%s; this machine's clock says %s, the server's %s", span, stamp(now), stamp(there))
		f.Remedy = clock
		if there.After(cert.NotAfter) {
			f.Remedy = "the certificate has expired: the cluster's operator has to renew it"
		}
		return
	}
	f.Message = fmt.Sprintf("%s, but this machine's clock says %s", span, stamp(now))
	f.Remedy = "if that is wrong, " + clock + "; else the cluster's operator has to renew the certificate"
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }

// date asks the server for its date. The server is not verified, so nothing is sent to it and nothing but the date is taken from it.
func (d *dialer) date(ctx context.Context, addr string) (time.Time, error) {
	conn, err := d.connect(ctx, addr)
	if err != nil {
		return time.Time{}, err
	}
	defer conn.Close()
	secure, err := d.secure(ctx, conn, &tls.Config{ServerName: d.tls.ServerName, InsecureSkipVerify: true})
	if err != nil {
		return time.Time{}, err
	}
	if err := secure.SetDeadline(time.Now().Add(d.patience)); err != nil {
		return time.Time{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, "https://"+addr+"/version", nil)
	if err != nil {
		return time.Time{}, err
	}
	if err := req.Write(secure); err != nil {
		return time.Time{}, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(secure), req)
	if err != nil {
		return time.Time{}, err
	}
	return http.ParseTime(resp.Header.Get("Date"))
}

// names lists what a certificate is for.
func names(cert *x509.Certificate) string {
	list := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		list = append(list, ip.String())
	}
	if len(list) == 0 {
		return "no name at all"
	}
	const most = 6
	if len(list) > most {
		list = append(list[:most], fmt.Sprintf("%d more", len(list)-most))
	}
	return strings.Join(list, ", ")
}
