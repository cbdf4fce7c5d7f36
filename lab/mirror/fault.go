package mirror

import (
	"fmt"
	"net"
	"net/http"
	"path"
	"strings"
)

// Knobs make the mirror slow or faulty. The zero value is a mirror that is neither.
type Knobs struct {
	// BytesPerSecond limits all connections together; 0 is no limit.
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
	// Faults are tried in order for each request; the first that matches and is not used up is what
	// happens to it.
	Faults []Fault `json:"faults,omitempty"`
}

// Fault is something that goes wrong with the requests for some files.
type Fault struct {
	// Path is a path.Match pattern, against the whole URL path if it has a slash, else against the
	// last element: "kubelet*" is kubelet, kubelet.zst and kubelet.sha256. Empty matches every
	// file.
	Path string `json:"path,omitempty"`
	// Client is the address of the only machine that it happens to; empty is every one.
	Client string `json:"client,omitempty"`
	Kind   Kind   `json:"kind"`
	// After is the number of bytes of a response body that are sent before Cut, Corrupt and Stall
	// do their work. A shorter body is not hurt.
	After int64 `json:"after,omitempty"`
	// Times is the number of requests that it happens to; 0 is all of them.
	Times int `json:"times,omitempty"`
	// BytesPerSecond is the speed of Drip.
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
	// Status is the answer of Status; 0 is 500.
	Status int `json:"status,omitempty"`
}

// Kind is the kind of a fault.
type Kind string

// Cut closes the connection in the middle. Corrupt sends one wrong byte. Status answers with an
// error. HTML answers 200 with the page of a captive portal. Stall stops sending and keeps the
// connection open until the client goes or the knobs change. NoRange answers a range request with
// the whole file. Drip sends slowly.
const (
	Cut     Kind = "cut"
	Corrupt Kind = "corrupt"
	Status  Kind = "status"
	HTML    Kind = "html"
	Stall   Kind = "stall"
	NoRange Kind = "noRange"
	Drip    Kind = "drip"
)

// Validate finds mistakes that would make a fault never happen.
func (k Knobs) Validate() error {
	if k.BytesPerSecond < 0 {
		return fmt.Errorf("bytesPerSecond must not be negative")
	}
	for i, f := range k.Faults {
		if err := f.validate(); err != nil {
			return fmt.Errorf("faults[%d]: %w", i, err)
		}
	}
	return nil
}

func (f Fault) validate() error {
	if _, err := path.Match(f.Path, ""); err != nil {
		return fmt.Errorf("path %q is not a pattern: %w", f.Path, err)
	}
	if f.Client != "" && net.ParseIP(f.Client) == nil {
		return fmt.Errorf("client %q is no address", f.Client)
	}
	if f.After < 0 || f.Times < 0 || f.BytesPerSecond < 0 {
		return fmt.Errorf("after, times and bytesPerSecond must not be negative")
	}
	switch f.Kind {
	case Cut, Corrupt, HTML, Stall, NoRange:
	case Drip:
		if f.BytesPerSecond == 0 {
			return fmt.Errorf("drip needs bytesPerSecond")
		}
	case Status:
		if f.Status != 0 && (f.Status < 400 || f.Status > 599) {
			return fmt.Errorf("status must be 400 to 599")
		}
	default:
		return fmt.Errorf("kind %q is none of cut, corrupt, status, html, stall, noRange, drip", f.Kind)
	}
	return nil
}

// from reports whether the fault can happen to a client, whose address has a port.
func (f Fault) from(client string) bool {
	address, _, err := net.SplitHostPort(client)
	return f.Client == "" || err == nil && address == f.Client
}

func (f Fault) matches(file string) bool {
	if f.Path == "" {
		return true
	}
	if !strings.Contains(f.Path, "/") {
		file = path.Base(file)
	}
	ok, err := path.Match(f.Path, file)
	return ok && err == nil
}

// hits says whether the fault can happen to a request with this method: without a body, most
// cannot.
func (f Fault) hits(method string) bool {
	return method == http.MethodGet || f.Kind == Status || f.Kind == HTML
}
