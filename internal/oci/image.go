// Package oci makes container images of programs and files, without a container engine and the same
// bytes each time: names in order, no times, no names of users. It does not push, pull or run them.
package oci

import (
	"fmt"
	"io"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Image is what an image is made of.
type Image struct {
	Architecture string // as Go calls it
	Config       v1.Config
	// Created is the time that the image says; zero is the beginning of Unix time.
	Created time.Time
	// By is what has made it, as its history says.
	By     string
	Layers []Layer
}

// Build makes the image.
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

// Index is one image for several architectures.
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

// WriteArchive writes an image as an OCI image layout in a tar archive (image-spec, "Image
// Layout"), which has it under a name, such as registry.example/program:1.
func WriteArchive(to io.Writer, index v1.ImageIndex, name, tag string) error {
	dir, err := os.MkdirTemp("", "image-layout-")
	if err != nil {
		return fmt.Errorf("cannot write the image: %w", err)
	}
	defer os.RemoveAll(dir)
	named := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add: index, Descriptor: v1.Descriptor{Annotations: map[string]string{
			"org.opencontainers.image.ref.name": tag,
			// containerd and those that import with it take the whole name from here
			"io.containerd.image.name": name + ":" + tag,
		}},
	})
	_, err = layout.Write(dir, named)
	if err == nil {
		err = pack(to, func(p *Packer) error { return p.Tree(dir) })
	}
	if err != nil {
		return fmt.Errorf("cannot write the image: %w", err)
	}
	return nil
}
