package e2e

import (
	"testing"

	"github.com/Azure/AKSFlexNode/lab"
)

// Data disks and symbolic links at the data directories of containerd and kubelet belong to the
// machine's owner: the machine joins, runs pods, and leaves them unchanged.
func TestDataDisks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		disks []lab.Disk
		setup string
	}{
		{"mounts", []lab.Disk{
			{FS: "ext4", Path: "/var/lib/containerd"}, {FS: "xfs", Path: "/var/lib/kubelet"},
		}, "true"},
		{"links", []lab.Disk{{FS: "ext4", Path: "/data"}}, `mkdir /data/containerd /data/kubelet &&
			ln -s /data/containerd /data/kubelet /var/lib/ &&
			echo foreign >/data/foreign && chmod 640 /data/foreign`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx := t.Context()
			m, err := bench.AddMachineWithDisks(ctx, "disk-"+tt.name, tt.disks...)
			dispose(t, m)
			if err != nil {
				t.Fatal(err)
			}
			configure(t, m, lab.Newest)
			if out, code := inside(t, m, "bash", "-c", tt.setup); code != 0 {
				t.Fatal(out)
			}
			before := snapshot(ctx, t, m)
			must(t, m, "bootstrap")
			if _, err := bench.CheckPod(ctx, "pod-"+m.Name, m.Name); err != nil {
				t.Error(err)
			}
			if out, code := flex(t, m, "drift"); code != 0 {
				t.Errorf("drift: exit code %d\n%s", code, out)
			}
			must(t, m, "unbootstrap", "--yes")
			same(t, before, snapshot(ctx, t, m))
		})
	}
}
