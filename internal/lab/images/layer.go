package images

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// layerOf is a layer of what pack writes. It is not compressed: it only goes from memory to a
// machine on this box, and each machine would have to unpack it.
func layerOf(pack func(*tar.Writer) error) (v1.Layer, error) {
	var packed bytes.Buffer
	t := tar.NewWriter(&packed)
	if err := pack(t); err != nil {
		return nil, err
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	return static.NewLayer(packed.Bytes(), types.OCIUncompressedLayer), nil
}

// packFile writes a file under another name. The directories above it are made by who unpacks it.
func packFile(t *tar.Writer, name, file string, mode fs.FileMode) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	header := &tar.Header{
		Name: name, Mode: int64(mode), Size: int64(len(text)), ModTime: time.Unix(0, 0),
		Format: tar.FormatPAX,
	}
	if err := t.WriteHeader(header); err != nil {
		return err
	}
	_, err = t.Write(text)
	return err
}

// packTree writes the files and links of a directory tree, in the order of their names.
func packTree(t *tar.Writer, root string) error {
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
			return t.WriteHeader(&tar.Header{
				Typeflag: tar.TypeSymlink, Name: name, Linkname: target, ModTime: time.Unix(0, 0),
				Format: tar.FormatPAX,
			})
		}
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		return packFile(t, name, file, info.Mode().Perm())
	})
}
