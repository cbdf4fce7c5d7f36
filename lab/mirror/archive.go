package mirror

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"
)

// entry is a file of an archive.
type entry struct {
	// name is its name in the archive, from its name in the component's directory.
	name string
	from string
}

// below returns entries for files of a component under a prefix.
func below(prefix string, names ...string) []entry {
	var list []entry
	for _, n := range names {
		list = append(list, entry{name: prefix + n, from: n})
	}
	return list
}

// writeTar writes an archive that depends only on the entries' names, order and content, with a
// copy to sum. Directories precede their files, as in the projects' archives.
func writeTar(to, programs string, entries []entry, sum io.Writer) error {
	return create(to, func(out io.Writer) error {
		t := tar.NewWriter(io.MultiWriter(out, sum))
		made := map[string]bool{}
		for _, e := range entries {
			if dir, _ := filepath.Split(e.name); !made[dir] {
				made[dir] = true
				if err := t.WriteHeader(header(dir, tar.TypeDir, 0o755, 0)); err != nil {
					return err
				}
			}
			if err := writeEntry(t, e.name, filepath.Join(programs, e.from)); err != nil {
				return err
			}
		}
		return t.Close()
	})
}

func writeEntry(t *tar.Writer, name, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	mode := int64(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	if err := t.WriteHeader(header(name, tar.TypeReg, mode, info.Size())); err != nil {
		return err
	}
	_, err = io.Copy(t, in)
	return err
}

func header(name string, kind byte, mode, size int64) *tar.Header {
	return &tar.Header{
		Name: name, Typeflag: kind, Mode: mode, Size: size, ModTime: time.Unix(0, 0),
		Format: tar.FormatUSTAR,
	}
}

func gzipFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return create(to, func(out io.Writer) error {
		z := gzip.NewWriter(out)
		if _, err := io.Copy(z, in); err != nil {
			return errors.Join(err, z.Close())
		}
		return z.Close()
	})
}
