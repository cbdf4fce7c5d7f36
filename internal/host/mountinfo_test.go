package host

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
)

// Mounts come in the order in which they can be unmounted, and a name that only begins alike is not
// below.
func TestUnder(t *testing.T) {
	over := &mountinfo.Info{Mountpoint: "/a/b", Source: "over it"}
	list := []*mountinfo.Info{
		{Mountpoint: "/a"}, {Mountpoint: "/a/b"}, {Mountpoint: "/ab"}, {Mountpoint: "/a/b/c"}, over,
	}
	got := under(list, "/a")
	want := []*mountinfo.Info{{Mountpoint: "/a/b/c"}, over, {Mountpoint: "/a/b"}, {Mountpoint: "/a"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}
