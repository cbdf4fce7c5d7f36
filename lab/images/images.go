// Package images makes the lab's container images - pause, a small HTTP workload and others from
// its caller - and serves them from a registry in memory, under the names of the real ones. It does
// not pull, run or store images; flexlab serves the registry to the machines and installs HostsTOML
// for containerd.
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

// Hello is the workload image: it serves HTTP on port 8080 and logs a line at start and for each
// request. Its source documents its other uses, for kubectl exec and for other pods. It has no
// shell.
const Hello = "flexlab/hello:1"

//go:embed programs
var programs embed.FS

// Component returns the component that builds the images' programs; component.Builder returns the
// directory for New.
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

// names returns the names, without a registry, under which a program's image can be pulled: the
// registry serves all of them. Pause has every name and version that may be a default of
// containerd, kubelet or the agent.
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

// Image is an image in the registry other than those of this package's programs.
type Image struct {
	// Names are the names, without a registry, under which it can be pulled, as "repository:tag".
	Names []string
	// Tree is a local directory to copy to the image's root; "" for none.
	Tree string
	// Program is a local file, and Path its path in the image: the entry point.
	Program, Path string
	// User is its user, as "uid:gid".
	User string
}

// KubeProxy returns the image of kube-proxy in the Kubernetes project's layout. tools is a
// directory with the programs that it calls.
func KubeProxy(version, program, tools string) Image {
	return Image{
		Names: []string{"kube-proxy:v" + version}, Tree: tools,
		Program: program, Path: "usr/local/bin/kube-proxy", User: "0:0",
	}
}

// New returns a registry with the images of the programs in dir, and others. Any client may push to
// it: clients other than the lab must use ReadOnly.
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

// Push builds the image and pushes it under its names to the registry at a URL.
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

// build builds the image. Its layers are uncompressed: they are copied only on the host, and each
// machine would have to decompress them.
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

// ReadOnly returns a registry that refuses pushes.
func ReadOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "this registry is read-only", http.StatusMethodNotAllowed)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// HostsTOML returns containerd's certs.d/_default/hosts.toml that redirects pulls from every
// registry to url. ca, if not empty, is the machine's path of the CA of the registry's certificate.
// Source: docs/hosts.md of containerd.
func HostsTOML(url, ca string) string {
	text := fmt.Sprintf("[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", url)
	if ca != "" {
		text += fmt.Sprintf("  ca = %q\n", ca)
	}
	return text
}
