package oci

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Layer is one layer of an image.
type Layer struct {
	// Pack writes its content.
	Pack func(*Packer) error
	// Compressed has it be compressed, for who fetches it from afar.
	Compressed bool
}

// Packer writes the files of a layer. Directories above them are made by who unpacks it.
type Packer struct{ tar *tar.Writer }

// epoch is the time of every file.
var epoch = time.Unix(0, 0)

// File writes a file.
func (p *Packer) File(name string, content []byte, mode fs.FileMode) error {
	err := p.tar.WriteHeader(&tar.Header{
		Name: name, Mode: int64(mode), Size: int64(len(content)), ModTime: epoch,
		Format: tar.FormatPAX,
	})
	if err == nil {
		_, err = p.tar.Write(content)
	}
	return err
}

// Copy writes a file of this box under another name.
func (p *Packer) Copy(name, file string, mode fs.FileMode) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return p.File(name, content, mode)
}

// Dir writes a directory that somebody owns.
func (p *Packer) Dir(name string, mode fs.FileMode, owner int) error {
	return p.tar.WriteHeader(&tar.Header{
		Typeflag: tar.TypeDir, Name: name + "/", Mode: int64(mode), Uid: owner, Gid: owner,
		ModTime: epoch, Format: tar.FormatPAX,
	})
}

// Tree writes the files and links of a directory tree, in the order of their names. Files are for
// all to read, and for all to run if their owner may, whatever the umask that made them.
func (p *Packer) Tree(root string) error {
	return filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(file, path.Clean(root)+"/")
		if d.Type() == fs.ModeSymlink {
			target, err := os.Readlink(file)
			if err != nil {
				return err
			}
			return p.tar.WriteHeader(&tar.Header{
				Typeflag: tar.TypeSymlink, Name: name, Linkname: target, ModTime: epoch,
				Format: tar.FormatPAX,
			})
		}
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		mode := fs.FileMode(0o644)
		if info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		return p.Copy(name, file, mode)
	})
}

// pack is the archive of what is packed.
func pack(with func(*Packer) error) ([]byte, error) {
	var packed bytes.Buffer
	t := tar.NewWriter(&packed)
	if err := with(&Packer{t}); err != nil {
		return nil, err
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

func (l Layer) build() (v1.Layer, error) {
	packed, err := pack(l.Pack)
	if err != nil {
		return nil, err
	}
	if !l.Compressed {
		return static.NewLayer(packed, types.OCIUncompressedLayer), nil
	}
	return partial.UncompressedToLayer(archive(packed))
}

// archive is a layer before it is compressed (partial.UncompressedLayer).
type archive []byte

// DiffID implements partial.UncompressedLayer.
func (a archive) DiffID() (v1.Hash, error) {
	sum := sha256.Sum256(a)
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}, nil
}

// Uncompressed implements partial.UncompressedLayer.
func (a archive) Uncompressed() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(a)), nil
}

// MediaType implements partial.UncompressedLayer.
func (a archive) MediaType() (types.MediaType, error) { return types.OCILayer, nil }
