package stories

import "testing"

// A firewall that nobody has opened is told with the commands before a join, and not where the
// owner does not want to know. A check does not ask for it.
func TestFirewallWarns(t *testing.T) {
	for setting, want := range map[string]int{"": 1, "ignore": 0} {
		w := newWorld(t)
		w.config.Network.Firewall = setting
		w.write("/etc/ufw/ufw.conf", "ENABLED=yes\n")
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
		const text = "ufw allow 10250/tcp; "
		if n := w.warned(text); n != want {
			t.Errorf("with %q there are %d warnings, want %d:\n%s", setting, n, want, w.log.String())
		}
		w.steady("behind a firewall")
		if n := w.warned(text); n != want {
			t.Errorf("with %q there are %d warnings afterwards", setting, n)
		}
	}
}
