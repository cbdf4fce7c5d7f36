package host

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
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
	f, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("cannot read the mounts: %w", err)
	}
	defer f.Close()
	return parseMountinfo(f)
}

// parseMountinfo reads lines like
//
//	36 35 98:0 /root /mnt\040x rw,noatime master:1 - ext3 /dev/root rw,errors=continue
func parseMountinfo(r io.Reader) ([]mount, error) {
	var list []mount
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		left, right, ok := strings.Cut(lines.Text(), " - ")
		fields, tail := strings.Split(left, " "), strings.Split(right, " ")
		if !ok || len(fields) < 6 || len(tail) < 2 {
			return nil, fmt.Errorf("cannot read the mounts: %q is not a line of mountinfo", lines.Text())
		}
		list = append(list, mount{
			Point: unescape(fields[4]), Type: unescape(tail[0]), Source: unescape(tail[1]),
		})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("cannot read the mounts: %w", err)
	}
	return list, nil
}

// unescape undoes the octal escapes of blanks, tabs, line ends and backslashes.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// within tells whether a path is dir or below it.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, path.Clean(dir)+"/") || dir == "/"
}

// under returns the mounts at or below dir, in the order in which they can be unmounted: the latest
// and deepest first.
func under(list []mount, dir string) []mount {
	var found []mount
	for _, m := range list {
		if within(m.Point, dir) {
			found = append(found, m)
		}
	}
	slices.Reverse(found)
	slices.SortStableFunc(found, func(a, b mount) int {
		return strings.Count(b.Point, "/") - strings.Count(a.Point, "/")
	})
	return found
}
