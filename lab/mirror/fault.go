package mirror

import (
	"fmt"
	"net"
	"net/http"
	"path"
	"strings"
)

// Knobs make the mirror slow or faulty. The zero value does neither.
type Knobs struct {
	// BytesPerSecond is the limit for all connections together; 0 means none.
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
	// Faults are tried in order for each request; the first that matches and is not used up applies.
	Faults []Fault `json:"faults,omitempty"`
}

// Fault is a fault in requests for some files.
type Fault struct {
	// Path is a path.Match pattern, for the whole URL path if it has a slash, else for its last
	// element: "kubelet*" matches kubelet, kubelet.zst and kubelet.sha256. "" matches every file.
	Path string `json:"path,omitempty"`
	// Client is the address of the only affected machine; "" means all.
	Client string `json:"client,omitempty"`
	Kind   Kind   `json:"kind"`
	// After is the number of bytes of a body sent before Cut, Corrupt and Stall apply. A shorter body
	// is not affected.
	After int64 `json:"after,omitempty"`
	// Times is the number of affected requests; 0 means all.
	Times int `json:"times,omitempty"`
	// BytesPerSecond is the speed of Drip.
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
	// Status is the response's status for the kind Status; 0 means 500.
	Status int `json:"status,omitempty"`
}

// Kind is the kind of a fault.
type Kind string

// Cut closes the connection in the middle. Corrupt sends one wrong byte. Status returns an error.
// HTML returns 200 with the page of a captive portal. Stall stops sending and keeps the connection
// open until the client closes it or the knobs change. NoRange returns the whole file for a range
// request. Drip sends slowly.
const (
	Cut     Kind = "cut"
	Corrupt Kind = "corrupt"
	Status  Kind = "status"
	HTML    Kind = "html"
	Stall   Kind = "stall"
	NoRange Kind = "noRange"
	Drip    Kind = "drip"
)

// Validate returns an error for a fault that could never happen.
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
		return fmt.Errorf("client %q is not an address", f.Client)
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
		return fmt.Errorf("kind %q is not cut, corrupt, status, html, stall, noRange or drip", f.Kind)
	}
	return nil
}

// from reports whether the fault applies to a client, given with its port.
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

// hits reports whether the fault applies to a method: most faults need a body.
func (f Fault) hits(method string) bool {
	return method == http.MethodGet || f.Kind == Status || f.Kind == HTML
}
