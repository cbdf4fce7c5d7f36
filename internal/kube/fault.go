package kube

import (
	"crypto/x509"
	"errors"
	"net"
)

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

// Rebind tells whether an error may mean that the API server has another address or another CA than
// we know: its name does not resolve, or its certificate is not trusted. Whoever gave us address
// and CA can be asked again. It understands a *Fault of Probe and the errors of a Client.
func Rebind(err error) bool {
	if f, ok := errors.AsType[*Fault](err); ok && f.Layer == LayerDNS {
		return true
	}
	_, unresolved := errors.AsType[*net.DNSError](err)
	_, untrusted := errors.AsType[x509.UnknownAuthorityError](err)
	_, misnamed := errors.AsType[x509.HostnameError](err)
	return unresolved || untrusted || misnamed
}
