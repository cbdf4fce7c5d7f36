package lab

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// A dual-stack lab enables IPv6 forwarding and does not change the parameters of other interfaces,
// neither while it runs nor after it.
func TestForwardIPv6(t *testing.T) {
	if os.Geteuid() != 0 || !BoxHasIPv6() {
		t.Skip("networks need root, and these IPv6")
	}
	runtime.LockOSThread() // not unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for _, name := range []string{"plain0", "routes0"} {
		if _, err := run(ctx, "ip", "link", "add", name, "type", "bridge"); err != nil {
			t.Fatal(err)
		}
	}
	file := func(name string) string { return filepath.Join(parameters6, name, "forwarding") }
	if err := os.WriteFile(file("routes0"), []byte("1"), 0o644); err != nil {
		t.Fatal(err)
	}
	forwards := func(when, all string) {
		t.Helper()
		for name, want := range map[string]string{"all": all, "plain0": "0", "routes0": "1"} {
			if got := kernelParameters(file(name))[file(name)]; got != want {
				t.Errorf("%s, %s forwards: %s, want %s", when, name, got, want)
			}
		}
	}
	forwards("before", "0")
	l := &Lab{Dir: t.TempDir(), WithIPv6: true}
	if err := l.networkUp(ctx); err != nil {
		t.Fatal(err)
	}
	forwards("while the lab runs", "1")
	out, err := run(ctx, "ip", "-6", "addr", "show", "dev", Bridge, "scope", "global", "-tentative")
	if err != nil || !strings.Contains(out, HostIP6+"/64") || !l.HasIPv6() {
		t.Errorf("the bridge has %q: %v", out, err)
	}
	r, err := l.load()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.networkDown(ctx, r); err != nil {
		t.Error(err)
	}
	forwards("after the lab", "0")
}

// A running lab keeps its families.
func TestRunningLabGetsNoIPv6(t *testing.T) {
	l := &Lab{Dir: t.TempDir()}
	err := l.change(func(r *record) {
		r.Processes = []process{{Name: "etcd", PID: os.Getpid(), Start: startTime(os.Getpid())}}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.needIPv6(); err != nil {
		t.Errorf("not wanted: %v", err)
	}
	if l.WithIPv6 = true; !BoxHasIPv6() {
		t.Skip("this box has no IPv6")
	}
	if err := l.needIPv6(); err == nil || !strings.Contains(err.Error(), "flexlab down") {
		t.Errorf("a lab that runs is given IPv6: %v", err)
	}
	if err := l.change(func(r *record) { r.IPv6 = true }); err != nil {
		t.Fatal(err)
	}
	if err := l.needIPv6(); err != nil {
		t.Errorf("it has it already: %v", err)
	}
}

func TestRoutesOf(t *testing.T) {
	for line, want := range map[string]map[string]string{
		"":                         {},
		"10.244.1.0/24":            {},
		"10.244.1.0/24 192.0.2.11": {},
		"10.77.0.11":               {},
		"10.244.1.0/24 10.77.0.11": {"10.244.1.0/24": "10.77.0.11"},
		"10.244.1.0/24 fd77:244:0:1::/64 10.77.0.11 fd77::11": {
			"10.244.1.0/24": "10.77.0.11", "fd77:244:0:1::/64": "fd77::11",
		},
	} {
		if diff := cmp.Diff(want, routesOf(strings.Fields(line))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", line, diff)
		}
	}
}
