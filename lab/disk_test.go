package lab

import "testing"

func TestParseDisk(t *testing.T) {
	for text, want := range map[string]Disk{
		"ext4:/var/lib/containerd": {FS: "ext4", Path: "/var/lib/containerd"},
		"xfs:/data":                {FS: "xfs", Path: "/data"},
		"btrfs:/data":              {}, "ext4": {}, "ext4:data": {},
		"ext4:/": {}, "ext4:/data/": {}, "ext4:/../etc": {},
	} {
		got, err := ParseDisk(text)
		if got != want || (err == nil) != (want != Disk{}) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}
