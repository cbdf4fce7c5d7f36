package host

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

func TestSysctlPath(t *testing.T) {
	for name, want := range map[string]string{
		"net.ipv4.ip_forward":              "/proc/sys/net/ipv4/ip_forward",
		"net.ipv4.conf.eth0/100.rp_filter": "/proc/sys/net/ipv4/conf/eth0.100/rp_filter",
	} {
		if got := sysctlPath(name); got != want {
			t.Errorf("%s is at %s, want %s", name, got, want)
		}
	}
}

// To turn off swap may take long: it is progress all the time.
func TestSwapOffBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := testHost(t)
		var beats atomic.Int64
		h.Beat = func() { beats.Add(1) }
		h.Kernel.(*kernel).reads = 10 * time.Minute
		write(t, h, "/proc/swaps", "Filename Type Size Used Priority\n/a.img file 1 0 7\n")
		err := h.Set(t.Context(), state.Change{To: state.Swap{}}, nil)
		if n := beats.Load(); err != nil || n < 10 {
			t.Errorf("%v, %d beats", err, n)
		}
	})
}

func TestSysctl(t *testing.T) {
	h := testHost(t)
	write(t, h, "/proc/sys/vm/x", "0\n")
	set(t, h, state.Change{To: state.Sysctl{Name: "vm.x", Value: "1"}})
	gone := state.Sysctl{Name: "vm.gone", Value: "1"}
	if err := h.Set(t.Context(), state.Change{To: gone}, nil); err == nil {
		t.Error("a parameter that the kernel does not have was set")
	}
	set(t, h, state.Change{To: state.Sysctl{Name: "vm.gone"}})
	mkdir(t, h, "/proc/sys/vm/dir")
	dir := state.Sysctl{Name: "vm.dir", Value: "1"}
	if err := h.Set(t.Context(), state.Change{To: dir}, nil); err == nil {
		t.Error("a directory was set")
	}
	if _, err := h.Observe(t.Context(), dir.Key()); err == nil {
		t.Error("a directory was read")
	}
}

func TestModule(t *testing.T) {
	h := testHost(t)
	k := h.Kernel.(*kernel)
	write(t, h, "/proc/filesystems", "nodev\tproc\n\toverlay\n")
	write(t, h, "/proc/sys/net/bridge/bridge-nf-call-iptables", "1")
	mkdir(t, h, "/sys/module/x")
	for name, loaded := range map[string]bool{
		"overlay": true, "br_netfilter": true, "x": true, "y": false,
	} {
		is := observe(t, h, state.Key("module:"+name)).(state.Module)
		if is.Loaded != loaded {
			t.Errorf("module %s is %s", name, state.Show(is))
		}
	}
	for _, tt := range []struct {
		loaded bool
		broken error
		ok     bool
	}{
		{true, nil, true}, {true, unix.EPERM, false}, {false, nil, true},
		{false, unix.EBUSY, true}, {false, unix.ENOENT, true}, {false, unix.EPERM, false},
	} {
		k.broken = tt.broken
		to := state.Module{Name: "y", Loaded: tt.loaded}
		if err := h.Set(t.Context(), state.Change{To: to}, nil); (err == nil) != tt.ok {
			t.Errorf("loaded %v, kernel says %v: %v", tt.loaded, tt.broken, err)
		}
	}
}

func TestSwap(t *testing.T) {
	h := testHost(t)
	k := h.Kernel.(*kernel)
	off := state.Swap{}
	if is := observe(t, h, off.Key()); !state.Equal(is, off) {
		t.Errorf("without /proc/swaps it is %s", state.Show(is))
	}
	const head = "Filename Type Size Used Priority\n"
	write(t, h, "/proc/swaps", head+"/b.img file 1 0 -2\n/a.img file 1 0 7\n")
	on := observe(t, h, off.Key()).(state.Swap)
	areas := []state.SwapArea{{Name: "/a.img", Priority: 7}, {Name: "/b.img", Priority: -2}}
	if !slices.Equal(on.Areas, areas) {
		t.Errorf("it is %+v", on)
	}
	for _, to := range []state.Swap{on, off} {
		if err := h.Set(t.Context(), state.Change{To: to}, nil); err != nil {
			t.Error(err)
		}
	}
	write(t, h, "/proc/swaps", head+"/b.img file 1 0 -2\n/theirs file 1 0 -3\n")
	if err := h.Set(t.Context(), state.Change{To: on}, nil); err != nil {
		t.Error(err)
	}
	want := []string{"swapoff /a.img", "swapoff /b.img", "swapon /a.img"}
	if !slices.Equal(k.done, want) {
		t.Errorf("the kernel did %v", k.done)
	}
	k.broken = unix.ENOENT // the owner has removed the area since
	if err := h.Set(t.Context(), state.Change{To: on}, nil); err != nil {
		t.Error(err)
	}
	k.broken = unix.EPERM
	for _, to := range []state.Swap{on, off} {
		if err := h.Set(t.Context(), state.Change{To: to}, nil); !errors.Is(err, unix.EPERM) {
			t.Errorf("the error is %v", err)
		}
	}
	write(t, h, "/proc/swaps", "/swap.img file 1 0 x\n")
	if err := h.Set(t.Context(), state.Change{To: on}, nil); err == nil {
		t.Error("a line of another form was accepted")
	}
}

// The running kernel: calls that cannot do harm.
func TestLinux(t *testing.T) {
	fakeTool(t, "modprobe", `[ "$2" = good ] || { echo "not found: $2"; exit 1; }`)
	if err := (linux{}).LoadModule(t.Context(), "good"); err != nil {
		t.Error(err)
	}
	err := linux{}.LoadModule(t.Context(), "bad")
	if err == nil || !strings.Contains(err.Error(), "not found: bad") {
		t.Errorf("the error is %v", err)
	}
	fakeTool(t, "swapoff", "kill -KILL $$") // as the kernel does when memory runs out
	off := linux{}.SwapOff(t.Context(), "/swap.img")
	if off == nil || !strings.Contains(off.Error(), "swapoff /swap.img: signal: killed") {
		t.Errorf("the error is %v", off)
	}
	none := t.TempDir() + "/none"
	for name, err := range map[string]error{
		"unload": linux{}.UnloadModule("no_such_module"),
		"on":     linux{}.SwapOn(none, 5), "name": linux{}.SwapOn("a\x00b", 0),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
