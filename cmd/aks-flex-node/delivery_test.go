package main

import (
	"net/http"
	"testing"
)

// The proxy of the first contact is that of the command line, else that of the environment; sudo drops
// the latter, which a failure says (E23).
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
		"sudo":           {delivery{}, map[string]string{"SUDO_UID": "1000"}, true},
		"sudo -E":        {delivery{}, map[string]string{"SUDO_UID": "1000", "https_proxy": "http://p"}, false},
		"root":           {delivery{}, nil, false},
		"a proxy is set": {delivery{proxy: "http://p"}, map[string]string{"SUDO_UID": "1000"}, false},
	} {
		if got := c.given.withoutProxy(func(k string) string { return c.env[k] }); (got != "") != c.hints {
			t.Errorf("%s: %q", name, got)
		}
	}
}
