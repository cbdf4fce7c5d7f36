package oci

import (
	"fmt"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// Index is one image for several architectures.
func Index(images ...v1.Image) (v1.ImageIndex, error) {
	var list []mutate.IndexAddendum
	for _, i := range images {
		config, err := i.ConfigFile()
		if err != nil {
			return nil, err
		}
		list = append(list, mutate.IndexAddendum{Add: i, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: config.OS, Architecture: config.Architecture},
		}})
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
	if _, err := layout.Write(dir, named); err != nil {
		return fmt.Errorf("cannot write the image: %w", err)
	}
	packed, err := pack(func(p *Packer) error { return p.Tree(dir) })
	if err == nil {
		_, err = to.Write(packed)
	}
	if err != nil {
		return fmt.Errorf("cannot write the image: %w", err)
	}
	return nil
}
