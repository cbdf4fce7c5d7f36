// Package oci makes container images from programs and files, without a container engine and
// reproducibly: names in order, fixed times, no user names. It does not push, pull or run them.
package oci

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Image describes an image.
type Image struct {
	Architecture string // in Go's spelling
	Config       v1.Config
	Created      time.Time // zero means the Unix epoch
	By           string    // the creator in the image's history
	Layers       []Layer
}

// Build builds the image.
func (i Image) Build() (v1.Image, error) {
	created := v1.Time{Time: epoch.UTC()}
	if !i.Created.IsZero() {
		created.Time = i.Created.UTC()
	}
	var layers []mutate.Addendum
	for _, l := range i.Layers {
		made, err := l.build()
		if err != nil {
			return nil, err
		}
		layers = append(layers, mutate.Addendum{
			Layer: made, History: v1.History{CreatedBy: i.By, Created: created},
		})
	}
	base := mutate.ConfigMediaType(
		mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON,
	)
	image, err := mutate.Append(base, layers...)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created, file.Config = "linux", i.Architecture, created, i.Config
	return mutate.ConfigFile(image, file)
}

// Index returns an index of the images of several architectures.
func Index(images ...v1.Image) (v1.ImageIndex, error) {
	var list []mutate.IndexAddendum
	for _, i := range images {
		config, err := i.ConfigFile()
		if err != nil {
			return nil, err
		}
		list = append(list, mutate.IndexAddendum{
			Add: i, Descriptor: v1.Descriptor{Platform: config.Platform()},
		})
	}
	return mutate.AppendManifests(empty.Index, list...), nil
}

// WriteArchive writes an image as an OCI image layout in a tar archive, under a name such as
// registry.example/program:1.
func WriteArchive(to io.Writer, index v1.ImageIndex, name, tag string) error {
	dir, err := os.MkdirTemp("", "image-layout-")
	if err != nil {
		return fmt.Errorf("cannot write the image: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := WriteLayout(dir, index, name, tag); err != nil {
		return err
	}
	if err := pack(to, func(p *Packer) error { return p.Tree(dir) }); err != nil {
		return fmt.Errorf("cannot write the image: %w", err)
	}
	return nil
}

// WriteLayout writes an image as an OCI image layout (image-spec, "Image Layout") into a directory.
func WriteLayout(dir string, index v1.ImageIndex, name, tag string) error {
	named := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add: index, Descriptor: v1.Descriptor{Annotations: map[string]string{
			"org.opencontainers.image.ref.name": tag,
			// containerd and its clients take the whole name from here
			"io.containerd.image.name": name + ":" + tag,
		}},
	})
	if _, err := layout.Write(dir, named); err != nil {
		return fmt.Errorf("cannot write the image: %w", err)
	}
	return nil
}

// ReadLayout returns the image of a layout that WriteLayout wrote for one architecture.
func ReadLayout(dir string) (v1.Image, error) {
	index, err := layout.ImageIndexFromPath(dir)
	for range 2 { // the layout's index and that of the architectures
		if err != nil {
			break
		}
		var manifest *v1.IndexManifest
		if manifest, err = index.IndexManifest(); err != nil {
			break
		}
		if len(manifest.Manifests) != 1 {
			return nil, fmt.Errorf("cannot read the image in %s: it has %d manifests", dir,
				len(manifest.Manifests))
		}
		only := manifest.Manifests[0]
		if only.MediaType.IsImage() {
			return index.Image(only.Digest)
		}
		index, err = index.ImageIndex(only.Digest)
	}
	return nil, fmt.Errorf("cannot read the image in %s: %w", dir, err)
}

// Layer is one layer of an image.
type Layer struct {
	Pack       func(*Packer) error // writes the layer's files
	Compressed bool                // for images that are pulled over a network
}

// Packer writes the files of a layer. Parent directories are not written; unpacking creates them.
type Packer struct{ tar *tar.Writer }

var epoch = time.Unix(0, 0) // the time of every file

func (p *Packer) write(h tar.Header, content []byte) error {
	h.Size, h.ModTime, h.Format = int64(len(content)), epoch, tar.FormatPAX
	if err := p.tar.WriteHeader(&h); err != nil {
		return err
	}
	_, err := p.tar.Write(content)
	return err
}

// File writes a file.
func (p *Packer) File(name string, content []byte, mode fs.FileMode) error {
	return p.write(tar.Header{Name: name, Mode: int64(mode)}, content)
}

// Copy writes a local file under another name.
func (p *Packer) Copy(name, file string, mode fs.FileMode) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return p.File(name, content, mode)
}

// Dir writes a directory with an owner.
func (p *Packer) Dir(name string, mode fs.FileMode, owner int) error {
	return p.write(tar.Header{
		Typeflag: tar.TypeDir, Name: name + "/", Mode: int64(mode), Uid: owner, Gid: owner,
	}, nil)
}

// Tree writes a directory's files and symbolic links in the order of their names. Files are
// readable for all, and executable for all if they are for their owner, whatever the umask.
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
			return p.write(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}, nil)
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

func pack(to io.Writer, with func(*Packer) error) error {
	t := tar.NewWriter(to)
	if err := with(&Packer{t}); err != nil {
		return err
	}
	return t.Close()
}

func (l Layer) build() (v1.Layer, error) {
	var packed bytes.Buffer
	if err := pack(&packed, l.Pack); err != nil {
		return nil, err
	}
	if !l.Compressed {
		return static.NewLayer(packed.Bytes(), types.OCIUncompressedLayer), nil
	}
	made, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(packed.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	// Hide the method Descriptor, whose empty annotations differ from those of a manifest that was
	// read.
	return struct{ v1.Layer }{made}, err
}
