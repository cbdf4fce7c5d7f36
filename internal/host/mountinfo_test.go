package host

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMountinfo(t *testing.T) {
	text := `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /sys/fs/cgroup/a\040b rw - cgroup2 cgroup2 rw
31 22 0:27 / /var/lib/kubelet/pods/x\134y\011z rw master:1 shared:2 - tmpfs tmpfs rw,size=1k
`
	got, err := parseMountinfo(text)
	if err != nil {
		t.Fatal(err)
	}
	want := []mount{
		{Point: "/", Source: "/dev/vda", Type: "ext4"},
		{Point: "/sys/fs/cgroup/a b", Source: "cgroup2", Type: "cgroup2"},
		{Point: "/var/lib/kubelet/pods/x\\y\tz", Source: "tmpfs", Type: "tmpfs"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	if _, err := parseMountinfo("nonsense\n"); err == nil {
		t.Error("a line that is none was accepted")
	}
}

// Mounts come in the order in which they can be unmounted, and a name that only begins alike is not
// below.
func TestUnder(t *testing.T) {
	over := mount{Point: "/a/b", Source: "over it"}
	list := []mount{{Point: "/a"}, {Point: "/a/b"}, {Point: "/ab"}, {Point: "/a/b/c"}, over}
	got := under(list, "/a")
	want := []mount{{Point: "/a/b/c"}, over, {Point: "/a/b"}, {Point: "/a"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func FuzzMountinfo(f *testing.F) {
	f.Add("22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n")
	f.Add(`31 22 0:27 / /a\040b\ rw - tmpfs tmp\134fs rw` + "\n")
	f.Add("1 2 3:4 / /x\\777 rw - a b c\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseMountinfo(text)
		if err != nil {
			return
		}
		lines := strings.Count(strings.TrimSuffix(text, "\n"), "\n") + 1
		if text != "" && len(list) > lines {
			t.Errorf("%d mounts in %d lines", len(list), lines)
		}
		for _, m := range under(list, "/x") {
			if m.Point != "/x" && !strings.HasPrefix(m.Point, "/x/") {
				t.Errorf("%q is not below /x", m.Point)
			}
		}
	})
}
