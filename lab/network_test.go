package lab

import (
	"net"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Down of a lab that has created no network keeps that of another lab; the lab that created it
// removes it.
func TestNetworkOfAnotherLab(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("networks need root")
	}
	runtime.LockOSThread() // not unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t.Context(), "ip", "link", "add", Bridge, "type", "bridge"); err != nil {
		t.Fatal(err)
	}
	there := func() bool { _, err := net.InterfaceByName(Bridge); return err == nil }
	other := &Lab{Dir: t.TempDir()}
	if err := other.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !there() {
		t.Fatal("the network of another lab is gone")
	}
	own := &Lab{Dir: t.TempDir()}
	if err := own.change(func(r *record) { r.Parameters = map[string]string{} }); err != nil {
		t.Fatal(err)
	}
	if err := own.Down(t.Context()); err != nil || there() {
		t.Errorf("the lab's own network is still there: %v", err)
	}
}
