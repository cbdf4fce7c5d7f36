package host

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ufw answers for its rules when it is enabled, firewalld for its own when it runs.
func TestFirewall(t *testing.T) {
	h := testHost(t)
	found := func() Firewall {
		t.Helper()
		f, err := h.Firewall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	if diff := cmp.Diff(Firewall{}, found()); diff != "" {
		t.Errorf("without any: %s", diff)
	}
	write(t, h, "/etc/ufw/ufw.conf", "# x\nENABLED=no\n")
	write(t, h, "/etc/ufw/user.rules", "rules")
	h.Systemd.(*units).known["firewalld.service"] = UnitStatus{Active: "active"}
	write(t, h, "/etc/firewalld/zones/public.xml", "<zone/>")
	if diff := cmp.Diff(Firewall{Firewalld: true, Zones: "<zone/>"}, found()); diff != "" {
		t.Errorf("with firewalld: %s", diff)
	}
	write(t, h, "/etc/ufw/ufw.conf", "ENABLED=yes\n")
	if diff := cmp.Diff(Firewall{UFW: true, UFWRules: "rules"}, found()); diff != "" {
		t.Errorf("with ufw: %s", diff)
	}
}
