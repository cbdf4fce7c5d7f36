package artifact

import (
	"archive/tar"
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

type tree struct {
	*os.Root
	touch Touch
}

// The max number of entries of an archive, including directories in names, and bytes of a name.
const maxEntries, maxName = 10_000, 512

// unpack reads all of src into root: a binary under the artifact's name, an archive as it is. sum
// receives the bytes with the known digest: the output of a zstd variant, else all of src.
func unpack(dir tree, a Artifact, zst bool, src io.Reader, sum io.Writer) error {
	if !zst {
		src = io.TeeReader(src, sum)
	}
	in := bufio.NewReaderSize(src, chunk)
	err := decode(dir, a, zst, in, sum)
	if zst && err != nil || isLocal(err) {
		return err
	}
	return cmp.Or(err, copyAll(io.Discard, in))
}

func decode(dir tree, a Artifact, zst bool, in *bufio.Reader, sum io.Writer) error {
	out := io.Reader(in)
	switch {
	case zst:
		const window = 32 << 20 // enough for every level below --ultra 21
		dec, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderMaxWindow(window), zstd.WithDecoderLowmem(true))
		if err != nil {
			return err
		}
		defer dec.Close()
		out = io.TeeReader(dec, sum)
	case a.Archive:
		dec, err := gzip.NewReader(in)
		if err != nil {
			return err
		}
		out = dec
	}
	most := a.maxBytes(false)
	if !a.Archive {
		return dir.writeFile(string(a.Name), 0o755, &limited{r: out, left: most})
	}
	most = max(8*most, 64<<20)
	out = &limited{r: out, left: most}
	if err := untar(dir, out, most); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, out)
	return err
}

type limited struct {
	r    io.Reader
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, &Error{Cause: TooLarge, what: "its content is too large"}
	}
	return n, err
}

// untar unpacks files and directories; it refuses links, devices and anything else, as no published
// archive has them. It sets modes to 0755 or 0644, whatever the archive or the umask.
func untar(dir tree, r io.Reader, left int64) error {
	t := tar.NewReader(r)
	for entries := 0; ; entries++ {
		h, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := entryName(h.Name)
		if err != nil && h.Typeflag != tar.TypeXGlobalHeader {
			return err
		}
		// A name with many parts becomes as many directories.
		if entries += strings.Count(name, "/"); entries >= maxEntries {
			return fmt.Errorf("it has more than %d entries", maxEntries)
		}
		// A sparse file has more bytes than its part of the archive: the stream's limit misses it.
		if left -= h.Size; left < 0 {
			return &Error{Cause: TooLarge,
				what: fmt.Sprintf("its content is too large: %s has %d bytes", name, h.Size)}
		}
		switch h.Typeflag {
		case tar.TypeXGlobalHeader: // GNU tar names it $TMPDIR/GlobalHead.PID.N
			err = nil
		case tar.TypeDir:
			err = dir.makeDirs(name)
		case tar.TypeReg:
			err = dir.untarFile(name, h.Mode, t)
		default:
			err = fmt.Errorf("%q is neither a file nor a directory (type %q)", h.Name, h.Typeflag)
		}
		if err != nil {
			return err
		}
	}
}

// entryName cleans a name in an archive and refuses one that is too long or leaves the root.
func entryName(name string) (string, error) {
	if len(name) > maxName {
		return "", fmt.Errorf("a name in it has %d bytes, more than %d", len(name), maxName)
	}
	if path.IsAbs(name) || strings.ContainsAny(name, "\\\x00") ||
		slices.Contains(strings.Split(name, "/"), "..") {
		return "", fmt.Errorf("the name %q leaves the archive", name)
	}
	name = path.Clean(name)
	if name == manifestName {
		return "", fmt.Errorf("the name %q is reserved for the store", name)
	}
	return name, nil
}

func (t tree) untarFile(name string, bits int64, r io.Reader) error {
	if name == "." {
		return errors.New("a file in it has no name")
	}
	if err := t.makeDirs(path.Dir(name)); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if bits&0o111 != 0 {
		mode = 0o755
	}
	return t.writeFile(name, mode, r)
}

func (t tree) makeDirs(dir string) error {
	if info, err := t.Lstat(dir); err == nil && info.IsDir() {
		return nil
	}
	err := t.touch.do(func() error { return t.MkdirAll(dir, 0o755) }, "make directory %s", dir)
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%q is both a file and a directory", dir)
	}
	return err
}

// writeFile creates a file and refuses an existing one.
func (t tree) writeFile(name string, mode fs.FileMode, r io.Reader) error {
	var f *os.File
	err := t.touch.do(func() (err error) {
		f, err = t.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	}, "create %s", name)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%q occurs twice", name)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Chmod(mode); err != nil {
		return diskError(err)
	}
	if err := copyAll(&diskWriter{f: f}, r); err != nil {
		return err
	}
	return diskError(f.Close())
}
