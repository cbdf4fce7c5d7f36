package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/lab"
	"github.com/Azure/AKSFlexNode/lab/mirror"
)

// What keeps a machine from joining, one after the other on one machine.
func TestObstacles(t *testing.T) {
	t.Parallel()
	m := machine(t, "obstacles-1")
	before := snapshot(t.Context(), t, m)
	for _, step := range []struct {
		name string
		run  func(*testing.T, lab.Machine, []string)
	}{
		{"Refusals", refusals}, {"ProgramOfAUser", programOfAUser},
		{"FullAndReadOnly", fullAndReadOnly}, {"FaultyMirror", faultyMirror},
	} {
		t.Run(step.name, func(t *testing.T) { step.run(t, m, before) })
	}
}

// Every fault of a mirror ends in success after retries, or in one clear error, and never in a
// wrong byte installed. The short form has one of each kind; internal/artifact has all of them
// without a machine.
func faultyMirror(t *testing.T, m lab.Machine, before []string) {
	ctx := t.Context()
	type test struct {
		name   string
		faults []mirror.Fault
		fails  string // in the error; "" for success
	}
	tests := []test{
		{"cut in the middle three times", []mirror.Fault{{Kind: mirror.Cut, After: 1 << 20, Times: 3}},
			""},
		{"cut, and no ranges", []mirror.Fault{{Kind: mirror.Cut, After: 4 << 20, Times: 2},
			{Kind: mirror.NoRange}}, ""},
		{"wrong bytes in the zstd variants", []mirror.Fault{{Path: "*.zst", Kind: mirror.Corrupt,
			After: 1000}}, ""},
		{"500 twice", []mirror.Fault{{Kind: mirror.Status, Times: 2}}, ""},
		{"wrong bytes always", []mirror.Fault{{Path: "kubelet*", Kind: mirror.Corrupt, After: 1 << 20}},
			"kubelet"},
		{"captive portal", []mirror.Fault{{Kind: mirror.HTML}},
			"received a web page instead of the file"},
	}
	if !long() {
		tests = []test{tests[0], tests[4]}
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for i := range tt.faults {
				tt.faults[i].Client = m.IP // other tests use the same mirror
			}
			if err := bench.Mirror().Set(ctx, mirror.Knobs{Faults: tt.faults}); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := bench.Mirror().Set(ctx, mirror.Knobs{}); err != nil {
					t.Error(err)
				}
			}()
			out, code := flex(t, m, "bootstrap")
			if tt.fails == "" && code != 0 {
				t.Errorf("exit code %d\n%s", code, out)
			}
			if tt.fails != "" {
				if code != 1 || !strings.Contains(out, tt.fails) {
					t.Errorf("exit code %d, want 1 and an error with %q\n%s", code, tt.fails, out)
				}
				if _, err := os.Lstat(filepath.Join(m.Root, "usr/local/bin/kubelet")); err == nil {
					t.Error("kubelet is installed although it could not be had")
				}
			}
			must(t, m, "unbootstrap", "--yes", "--drain-timeout=0")
			same(t, before, snapshot(ctx, t, m))
		})
	}
}

// A full disk and a read-only directory end in a clear error. Once one is repaired, the next run
// gets past it, with what the failed runs have left, and the last one finishes.
func fullAndReadOnly(t *testing.T, m lab.Machine, _ []string) {
	tests := []struct {
		name        string
		spoil, mend []string
		says        string
	}{
		{"full before the start", []string{"mount", "-t", "tmpfs", "-o", "size=30m", "tmpfs", "/opt"},
			[]string{"umount", "/opt"}, "MB are free below /opt"},
		{"full on the way", []string{"mount", "-t", "tmpfs", "-o", "size=4g,nr_inodes=12", "tmpfs",
			"/opt"}, []string{"umount", "/opt"}, "free some space"},
		{"read-only", []string{"mount", "-t", "tmpfs", "-o", "ro", "tmpfs", "/etc/sysctl.d"},
			[]string{"umount", "/etc/sysctl.d"}, "read-only file system"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if out, code := inside(t, m, tt.spoil...); code != 0 {
				t.Fatalf("cannot spoil it: %s", out)
			}
			out, code := flex(t, m, "bootstrap")
			if code != 1 || !strings.Contains(out, tt.says) {
				t.Errorf("exit code %d, want 1 and an error with %q\n%s", code, tt.says, out)
			}
			if out, code := inside(t, m, tt.mend...); code != 0 {
				t.Fatalf("cannot mend it: %s", out)
			}
		})
	}
	must(t, m, "bootstrap")
	must(t, m, "unbootstrap", "--yes", "--drain-timeout=0")
}

// Obstacles to a join are reported in a sentence before any change.
func refusals(t *testing.T, m lab.Machine, before []string) {
	tests := []struct {
		name        string
		spoil, mend []string
		run         []string
		says        string
	}{
		{name: "without root", run: []string{"setpriv", "--reuid=65534", "--regid=65534",
			"--clear-groups", "aks-flex-node", "bootstrap"}, says: "root"},
		{
			name: "without network", spoil: []string{"ip", "link", "set", "host0", "down"},
			mend: []string{"bash", "-c",
				"ip link set host0 up; systemctl restart systemd-networkd; for i in $(seq 50); do ip route " +
					"| grep -q default && exit 0; sleep 0.1; done; exit 1"},
			run: []string{"aks-flex-node", "bootstrap"}, says: "API server",
		},
		{
			name: "on another system", spoil: []string{"bash", "-c",
				"mv /etc/os-release /etc/os-release.was; printf " +
					"'ID=fedora\\nVERSION_ID=41\\nPRETTY_NAME=\"Fedora Linux 41\"\\n' >/etc/os-release"},
			mend: []string{"mv", "/etc/os-release.was", "/etc/os-release"},
			run:  []string{"aks-flex-node", "bootstrap"}, says: "cannot use this system, Fedora Linux 41",
		},
		{
			name: "with a foreign containerd",
			spoil: []string{"bash", "-c",
				"printf '[Service]\\nExecStart=/bin/true\\n' >/lib/systemd/system/containerd.service; " +
					"systemctl daemon-reload"},
			mend: []string{"bash", "-c",
				"rm /lib/systemd/system/containerd.service; systemctl daemon-reload"},
			run:  []string{"aks-flex-node", "bootstrap"},
			says: "another program has installed containerd.service",
		},
		{
			name: "with an unknown token",
			run: []string{"bash", "-c",
				`umask 077
sed 's/"token": "[a-z0-9]*\./"token": "zzzzzz./' /etc/aks-flex-node/config.json >/etc/bad.json
aks-flex-node bootstrap --config /etc/bad.json
code=$?
rm /etc/bad.json
exit $code`},
			says: "401",
		},
		{name: "with a configuration that others can read",
			spoil: []string{"chmod", "0644", "/etc/aks-flex-node/config.json"},
			mend:  []string{"chmod", "0600", "/etc/aks-flex-node/config.json"},
			run:   []string{"aks-flex-node", "bootstrap"}, says: "chmod 600"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.spoil != nil {
				if out, code := inside(t, m, tt.spoil...); code != 0 {
					t.Fatalf("cannot spoil it: %s", out)
				}
			}
			out, code := inside(t, m, tt.run...)
			if code == 0 || !strings.Contains(out, tt.says) {
				t.Errorf("exit code %d, want an error with %q\n%s", code, tt.says, out)
			}
			t.Logf("%s", strings.TrimSpace(out))
			if tt.mend != nil {
				if out, code := inside(t, m, tt.mend...); code != 0 {
					t.Fatalf("cannot mend it: %s", out)
				}
			}
			same(t, before, snapshot(t.Context(), t, m))
		})
	}
}
