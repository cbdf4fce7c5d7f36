package kube

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// M3: a request with a previous address or CA gets an error that they may be out of date.
func TestRebind(t *testing.T) {
	server, ca := api(t, version)
	_, other := api(t, version)
	other = other[:len(other)-40] // cut: httptest has one certificate for all its servers
	localhost := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	closed := httptest.NewTLSServer(http.NotFoundHandler())
	closed.Close()
	tests := []struct {
		name   string
		target Target
		want   bool
	}{
		{"all is well", Target{Server: server.URL, CA: ca, Token: secret}, false},
		{"another CA", Target{Server: server.URL, CA: other, Token: secret}, true},
		{"another name", Target{Server: localhost, CA: ca, Token: secret}, true},
		{"no such name", Target{Server: "https://api.invalid:1", CA: ca, Token: secret}, true},
		{"nothing listens", Target{Server: closed.URL, CA: ca, Token: secret}, false},
		{"no TLS", Target{Server: "https://" + plainServer(t), CA: ca, Token: secret}, false},
		{"a wrong token", Target{Server: server.URL, CA: ca, Token: "x"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Rebind(Probe(t.Context(), tt.target)); got != tt.want {
				t.Errorf("of Probe: %v, want %v", got, tt.want)
			}
			ca := tt.target.CA
			if tt.name == "another CA" {
				ca = nil // the system's
			}
			c, err := FromToken(tt.target.Server, ca, tt.target.Token, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, err = c.ServerVersion(t.Context())
			if got := Rebind(err); got != tt.want {
				t.Errorf("of %v: %v, want %v", err, got, tt.want)
			}
		})
	}
	if Rebind(nil) || Rebind(errors.New("x")) || !Rebind(&Fault{Err: &net.DNSError{}}) {
		t.Error("Rebind of nil, of any error or of a name that does not resolve")
	}
}

func plainServer(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(version))
	t.Cleanup(server.Close)
	return server.Listener.Addr().(*net.TCPAddr).String()
}
