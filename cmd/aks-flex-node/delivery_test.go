package main

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/config"
)

// The CAs of the first contact are kept in the bundle, unless that brings others.
func TestCAOfTheFirstContactIsKept(t *testing.T) {
	const bare = `{"schemaVersion":"1.0","enrolmentSecret":"e","root":"cm9vdA==","config":{"a":1}}`
	own, err := config.WithJoining([]byte(bare), config.Joining{ProviderCA: []byte("its own")})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ bundle, given, kept string }{
		{bare, "of the file", "of the file"},
		{bare, "", ""},
		{string(own), "of the file", "its own"},
	} {
		got, err := withCA([]byte(c.bundle), []byte(c.given))
		if err != nil {
			t.Fatal(err)
		}
		kept := config.JoiningOf(got)
		if string(kept.ProviderCA) != c.kept {
			t.Errorf("%q is kept, not %q", kept.ProviderCA, c.kept)
		}
		before := config.JoiningOf([]byte(c.bundle))
		if kept.EnrolmentSecret != before.EnrolmentSecret || !bytes.Equal(kept.Root, before.Root) {
			t.Errorf("%s became %s", c.bundle, got)
		}
	}
}

// The proxy of the first contact is that of the command line, else that of the environment; sudo
// drops the latter, which a failure says (E23).
func TestProxyOfTheFirstContact(t *testing.T) {
	request, err := http.NewRequest(http.MethodGet, "https://provider.example/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	route, err := delivery{proxy: "http://proxy.example:3128"}.route()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := route(request); err != nil || got.String() != "http://proxy.example:3128" {
		t.Errorf("it asks through %v, %v", got, err)
	}
	for _, bad := range []string{"proxy.example:3128", "ftp://proxy.example", "http://"} {
		if _, err := (delivery{proxy: bad}).route(); exitCode(err) != exitConfig {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for name, c := range map[string]struct {
		given delivery
		env   map[string]string
		hints bool
	}{
		"sudo": {delivery{}, map[string]string{"SUDO_UID": "1000"}, true},
		"sudo -E": {delivery{}, map[string]string{"SUDO_UID": "1000", "https_proxy": "http://p"},
			false},
		"root":           {delivery{}, nil, false},
		"a proxy is set": {delivery{proxy: "http://p"}, map[string]string{"SUDO_UID": "1000"}, false},
	} {
		got := c.given.withoutProxy(func(k string) string { return c.env[k] })
		if (got != "") != c.hints {
			t.Errorf("%s: %q", name, got)
		}
	}
}
