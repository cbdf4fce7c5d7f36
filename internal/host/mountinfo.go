package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// mount is one line of mountinfo (proc_pid_mountinfo(5)).
type mount struct {
	// Point is where it is mounted, Source what, Type the file system's.
	Point, Source, Type string
}

// remote reports whether a server or process serves the file system, which may not answer.
func (m mount) remote() bool {
	const network = "nfs nfs4 cifs smb3 ceph lustre afs 9p fuse"
	return strings.HasPrefix(m.Type, "fuse.") || slices.Contains(strings.Fields(network), m.Type)
}

// mounts lists what is mounted for the calling thread, in the order of mounting.
func mounts() ([]mount, error) {
	text, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("cannot read the mounts: %w", err)
	}
	return parseMountinfo(string(text))
}

// parseMountinfo reads lines like
//
//	36 35 98:0 /root /mnt\040x rw,noatime master:1 - ext3 /dev/root rw,errors=continue
func parseMountinfo(text string) ([]mount, error) {
	var list []mount
	for line := range strings.Lines(text) {
		left, right, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		fields, tail := strings.Split(left, " "), strings.Split(right, " ")
		if !ok || len(fields) < 6 || len(tail) < 2 {
			return nil, fmt.Errorf("cannot read the mounts: %q is not a line of mountinfo", line)
		}
		list = append(list, mount{
			Point: unescape(fields[4]), Type: unescape(tail[0]), Source: unescape(tail[1]),
		})
	}
	return list, nil
}

// unescape undoes the kernel's escapes of blanks, tabs, line ends, backslashes and number signs.
var unescape = strings.NewReplacer(
	`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#").Replace

// within reports whether a path is dir or below it.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, path.Clean(dir)+"/") || dir == "/"
}

// under returns the mounts at or below dir, in the order in which they can be unmounted: the latest
// and deepest first.
func under(list []mount, dir string) []mount {
	found := slices.DeleteFunc(slices.Clone(list), func(m mount) bool { return !within(m.Point, dir) })
	slices.Reverse(found)
	slices.SortStableFunc(found, func(a, b mount) int {
		return strings.Count(b.Point, "/") - strings.Count(a.Point, "/")
	})
	return found
}

func (linux) findMounts(_ context.Context, prefix string) ([]string, error) {
	list, err := mounts()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, m := range list {
		if strings.HasPrefix(m.Point, prefix) {
			found = append(found, m.Point)
		}
	}
	matches, err := filepath.Glob(prefix + "*")
	return append(found, matches...), err
}

// clearMounts unmounts what is mounted at the given places and removes the empty files that they
// were mounted on. A network namespace in which somebody lives is not ours.
func (linux) clearMounts(_ context.Context, _ string, points []string) error {
	var errs []error
	lived, err := inhabited()
	if err != nil {
		return err
	}
	for _, point := range slices.Backward(slices.Sorted(slices.Values(points))) {
		var st unix.Stat_t
		if unix.Lstat(point, &st) == nil && lived[st.Ino] {
			continue
		}
		if err := detach(point); err != nil {
			errs = append(errs, fmt.Errorf("cannot unmount %s: %w", point, err))
			continue
		}
		if info, err := os.Lstat(point); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
			errs = append(errs, os.Remove(point))
		}
	}
	return errors.Join(errs...)
}

// inhabited are the network namespaces that processes live in, by inode. Those of our pods are
// empty when their mounts are removed: their processes have ended before.
func inhabited() (map[uint64]bool, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/task/[0-9]*/ns/net")
	if err != nil {
		return nil, err
	}
	inodes := map[uint64]bool{}
	for _, path := range paths {
		var st unix.Stat_t
		err := unix.Stat(path, &st)
		if err == nil {
			inodes[st.Ino] = true
		} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) &&
			!errors.Is(err, unix.EACCES) {
			return nil, &os.PathError{Op: "stat", Path: path, Err: err}
		}
	}
	return inodes, nil
}
