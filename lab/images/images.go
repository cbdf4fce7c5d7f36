// Package images makes the container images that the lab needs - pause, a small HTTP workload and
// those that its caller adds - and serves them from a registry in memory, under the names that the
// real ones have. It does not pull, run or keep images; flexlab serves the registry to the machines
// and places HostsTOML where containerd looks.
package images

import (
	"context"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/Azure/AKSFlexNode/lab/component"
	"github.com/Azure/AKSFlexNode/packaging/oci"
)

// Hello is the workload image: it serves HTTP on port 8080, logs a line at start and one for each
// request. Its source describes its other uses, for kubectl exec and for pods of their own. It has
// no shell.
const Hello = "flexlab/hello:1"

//go:embed programs
var programs embed.FS

// Component returns the component that the images are built from; component.Builder gives the
// directory that New takes.
func Component() (component.Component, error) {
	sources := map[string][]byte{"go.mod": []byte("module images\n\ngo 1.26.0\n")}
	c := component.Component{
		Name: "images", Version: "1", Sources: sources, Builds: []component.Build{{}},
	}
	for _, program := range []string{"pause", "hello"} {
		text, err := fs.ReadFile(programs, "programs/"+program+"/main.go")
		if err != nil {
			return component.Component{}, fmt.Errorf(
				"internal error: cannot read the source of %s: %w", program, err,
			)
		}
		sources[program+"/main.go"] = text
		c.Builds[0].Programs = append(
			c.Builds[0].Programs, component.Program{Name: program, Package: "./" + program},
		)
	}
	return c, nil
}

// names lists, for each program, the names under which its image can be pulled, without a registry:
// the registry answers for all of them. Pause has every name and version that containerd, kubelet
// or the agent may have as its default.
func names(program string) []string {
	if program == "hello" {
		return []string{Hello, "library/hello:1"}
	}
	var list []string
	for _, repository := range []string{"pause", "oss/kubernetes/pause", "oss/v2/kubernetes/pause"} {
		for _, tag := range []string{"3.6", "3.8", "3.9", "3.10", "3.10.1", "3.10.2"} {
			list = append(list, repository+":"+tag)
		}
	}
	return list
}

// Image is an image of the registry that is not built from this package's programs.
type Image struct {
	// Names are the names under which it can be pulled, without a registry, as "repository:tag".
	Names []string
	// Tree is a directory of this box that the image's root directory has; "" for none.
	Tree string
	// Program is a file of this box, and Path where it is in the image: what a container runs.
	Program, Path string
	// User runs it, as "uid:gid".
	User string
}

// KubeProxy is the image of kube-proxy, as the Kubernetes project lays it out. tools has the
// programs that it calls.
func KubeProxy(version, program, tools string) Image {
	return Image{
		Names: []string{"kube-proxy:v" + version}, Tree: tools,
		Program: program, Path: "usr/local/bin/kube-proxy", User: "0:0",
	}
}

// New returns a registry that has the images built from the programs in dir, and others. Every
// client that reaches it may push to it: others than the lab reach it through ReadOnly.
func New(ctx context.Context, dir string, others ...Image) (http.Handler, error) {
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	list := others
	for _, program := range []string{"pause", "hello"} {
		list = append(list, Image{
			Names: names(program), Program: filepath.Join(dir, program), Path: program,
			User: "65535:65535",
		})
	}
	for _, i := range list {
		image, err := i.build()
		if err != nil {
			return nil, fmt.Errorf("cannot make the image of %s: %w", filepath.Base(i.Path), err)
		}
		for _, n := range i.Names {
			if err := push(ctx, handler, n, image); err != nil {
				return nil, fmt.Errorf("cannot store the image %s: %w", n, err)
			}
		}
	}
	return handler, nil
}

// Push makes the image and stores it under its names in a registry that answers at a URL.
func (i Image) Push(ctx context.Context, base string) error {
	image, err := i.build()
	if err != nil {
		return fmt.Errorf("cannot make the image of %s: %w", filepath.Base(i.Path), err)
	}
	for _, name := range i.Names {
		if err := Push(ctx, base, name, image); err != nil {
			return err
		}
	}
	return nil
}

// build makes the image. Its layers are not compressed: they only go from memory to a machine on
// this box, and each machine would have to unpack them.
func (i Image) build() (v1.Image, error) {
	image := oci.Image{
		Architecture: runtime.GOARCH, By: "flexlab",
		Config: v1.Config{Entrypoint: []string{"/" + i.Path}, User: i.User},
	}
	if i.Tree != "" {
		image.Layers = append(image.Layers, oci.Layer{Pack: func(p *oci.Packer) error {
			return p.Tree(i.Tree)
		}})
	}
	image.Layers = append(image.Layers, oci.Layer{Pack: func(p *oci.Packer) error {
		return p.Copy(i.Path, i.Program, 0o755)
	}})
	return image.Build()
}

// ReadOnly returns a registry that refuses every push.
func ReadOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "this registry is read-only", http.StatusMethodNotAllowed)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// HostsTOML is the text of containerd's certs.d/_default/hosts.toml that sends the pulls from every
// registry to url. ca, when set, is the path on the machine of the certificate that the registry's
// is signed with. Source: docs/hosts.md of containerd.
func HostsTOML(url, ca string) string {
	text := fmt.Sprintf("[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", url)
	if ca != "" {
		text += fmt.Sprintf("  ca = %q\n", ca)
	}
	return text
}
