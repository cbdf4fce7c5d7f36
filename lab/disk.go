package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Disk is a data disk of a machine: a separate file system, mounted when the machine boots.
type Disk struct {
	// FS is ext4, which has a lost+found, or xfs.
	FS string `json:"fs"`
	// Path is the mount point in the machine.
	Path string `json:"path"`
}

// ParseDisk parses FS:PATH, such as ext4:/var/lib/containerd.
func ParseDisk(text string) (Disk, error) {
	kind, path, _ := strings.Cut(text, ":")
	clean := filepath.IsAbs(path) && filepath.Clean(path) == path && path != "/"
	if kind != "ext4" && kind != "xfs" || !clean {
		return Disk{}, fmt.Errorf("cannot make the disk %q: it must be ext4:PATH or xfs:PATH, "+
			"with a clean absolute path", text)
	}
	return Disk{FS: kind, Path: path}, nil
}

// diskSize is the size of a sparse image.
const diskSize = 2 << 30

func (l *Lab) diskImage(m Machine, i int) string {
	return l.path("machines", m.Name, fmt.Sprintf("disk-%d.img", i))
}

// makeDisk creates a disk's image and its mount point in the machine's root.
func (l *Lab) makeDisk(ctx context.Context, m Machine, i int, d Disk) error {
	mkfs := "mkfs." + d.FS
	if _, err := exec.LookPath(mkfs); err != nil && d.FS == "xfs" {
		if _, err := run(ctx, "apt-get", "install", "-y", "-qq", "xfsprogs"); err != nil {
			return err
		}
	}
	image, err := os.OpenFile(l.diskImage(m, i), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("cannot make a disk of %s: %w", m.Name, err)
	}
	defer image.Close()
	if err := image.Truncate(diskSize); err != nil {
		return fmt.Errorf("cannot make a disk of %s: %w", m.Name, err)
	}
	if _, err := run(ctx, mkfs, "-q", image.Name()); err != nil {
		return err
	}
	return os.MkdirAll(filepath.Join(m.Root, d.Path), 0o755)
}

// attachDisks mounts a machine's disks below its root before it boots. systemd-nspawn passes these
// mounts on, so each is a mount point inside, as on a real machine; a machine in a container cannot
// mount block devices.
func (l *Lab) attachDisks(ctx context.Context, m Machine) error {
	for i, d := range m.Disks {
		mounts, err := mountsBelow(m.Root)
		if err != nil {
			return err
		}
		at := filepath.Join(m.Root, d.Path)
		if slices.Contains(mounts, at) {
			continue
		}
		_, err = run(ctx, "mount", "-o", "loop", "-t", d.FS, l.diskImage(m, i), at)
		if err != nil {
			return err
		}
	}
	return nil
}

// detachDisks unmounts a machine's disks; their loop devices are detached automatically.
func detachDisks(m Machine) error {
	mounts, err := mountsBelow(m.Root)
	if err != nil || len(m.Disks) == 0 {
		return err
	}
	var errs []error
	for _, at := range slices.Backward(mounts) {
		errs = append(errs, unmount(at))
	}
	return errors.Join(errs...)
}

// unmount retries for a moment while processes of a stopped machine end.
func unmount(at string) (err error) {
	for range 50 {
		if err = unix.Unmount(at, 0); !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("cannot unmount %s: %w", at, err)
	}
	return nil
}

// mountsBelow returns the host's mount points below a directory, in the order of the mounts.
func mountsBelow(dir string) ([]string, error) {
	// proc_pid_mountinfo(5): field 5 is the mount point.
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("cannot read the host's mounts: %w", err)
	}
	var found []string
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			found = append(found, fields[4])
		}
	}
	return found, nil
}
