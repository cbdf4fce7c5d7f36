package conformance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/Azure/AKSFlexNode/lab"
	"github.com/Azure/AKSFlexNode/lab/component"
	"github.com/Azure/AKSFlexNode/lab/images"
	"github.com/Azure/AKSFlexNode/packaging/oci"
)

// configs are the configurations of the images by the last part of their names. All images have the
// same files: those of the distribution's packages and the tests' own.
var configs = map[string]v1.Config{
	"agnhost":           {Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}},
	"busybox":           {Cmd: []string{"sh"}},
	"etcd":              {Cmd: []string{"etcd"}},
	"glibc-dns-testing": {Cmd: []string{"sh"}},
	"kitten":            {Entrypoint: []string{"/agnhost"}, Cmd: []string{"test-webserver"}},
	"nautilus":          {Entrypoint: []string{"/agnhost"}, Cmd: []string{"test-webserver"}},
	"nginx":             {Cmd: []string{"nginx", "-g", "daemon off;"}},
	"nonewprivs":        {Cmd: []string{"nnp"}},
	"nonroot":           {Cmd: []string{"sh"}, User: "1234"},
	"perl":              {Cmd: []string{"perl"}},
	"sample-apiserver":  {Entrypoint: []string{"/sample-apiserver"}},
}

const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// packages are installed in the images beside the distribution's essential packages.
const packages = "bind9-dnsutils,busybox,ca-certificates,curl,iproute2,iputils-ping," +
	"netcat-openbsd,nginx,perl,procps"

// unused is removed from the images.
var unused = []string{
	"usr/lib/*/gconv", "usr/share/doc", "usr/share/locale", "usr/share/man", "var/cache",
	"var/lib/apt", "var/lib/dpkg", "var/log/nginx/*", "usr/bin/sh", "usr/bin/top",
}

// links are added, besides links for busybox's programs that no package has in /bin, such as sh,
// whose messages tests expect, and top, which needs no terminal. The shell in the search path is
// bash: it keeps variables whose names it could not set, such as those with a dash.
var links = map[string]string{
	"usr/local/bin/sh":        "/usr/bin/bash",
	"agnhost-2":               "agnhost",
	"var/log/nginx/error.log": "/dev/stderr",
}

// texts are additional files; those that begin with #! are executable. Tests look up the user by
// name, and let busybox's nmeter, which the distribution omits, print the time in milliseconds.
// Images cannot have empty directories, of which nginx needs two.
var texts = map[string]string{
	"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33::/var/www:/usr/sbin/nologin\n" +
		"nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n" +
		"user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n",
	"etc/group": "root:x:0:\nwww-data:x:33:\nnogroup:x:65534:\nuser-defined-in-image:x:1000:\n" +
		"group-defined-in-image:x:50000:user-defined-in-image\n",
	"run/.keep":            "",
	"var/lib/nginx/.keep":  "",
	"usr/local/bin/nmeter": "#!/bin/sh\nexec date -u +%T.%3N\n",
	"etc/nginx/nginx.conf": "events {}\nhttp {\n  access_log /dev/stdout;\n" +
		"  server { listen 80; root /usr/share/nginx/html; }\n}\n",
}

// system returns the root directory that the images share, in the lab's cache.
func system(ctx context.Context, l *lab.Lab) (string, error) {
	dir := filepath.Join(l.Cache, "suite-bookworm-7")
	return dir, component.Once(ctx, dir, func() {}, func(work string) error {
		l.Say("installing the system of the tests' images")
		cmd := exec.CommandContext(ctx, "mmdebstrap", "--quiet", "--variant=essential",
			"--include="+packages, "bookworm", work)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("mmdebstrap: %w: %s", err, out)
		}
		return adapt(work)
	})
}

// adapt changes an installed system into the images' root directory.
func adapt(root string) error {
	var errs []error
	for _, pattern := range unused {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		errs = append(errs, err)
		for _, path := range paths {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	cmd := exec.Command("/usr/bin/busybox", "--list")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	list, err := cmd.Output()
	errs = append(errs, err)
	for _, name := range strings.Fields(string(list)) {
		err := os.Symlink("busybox", filepath.Join(root, "usr/bin", name))
		if !errors.Is(err, fs.ErrExist) {
			errs = append(errs, err)
		}
	}
	for name, target := range links {
		errs = append(errs, os.Symlink(target, filepath.Join(root, name)))
	}
	for name, text := range texts {
		mode := fs.FileMode(0o644)
		if strings.HasPrefix(text, "#!") {
			mode = 0o755
		}
		errs = append(errs, os.WriteFile(filepath.Join(root, name), []byte(text), mode))
	}
	return errors.Join(errs...)
}

// pushImages pushes the images that the suite lists to the lab's registry, under the same names.
func (s *Suite) pushImages(ctx context.Context, list []string) error {
	root, err := system(ctx, s.Lab)
	if err != nil {
		return fmt.Errorf("cannot make the system of the tests' images: %w", err)
	}
	etcd, err := s.Lab.Component(ctx, component.Etcd)
	if err != nil {
		return err
	}
	base, err := oci.Image{
		Architecture: runtime.GOARCH, By: "flexlab",
		Layers: []oci.Layer{
			{Pack: func(p *oci.Packer) error { return p.Tree(root) }},
			{Pack: func(p *oci.Packer) error { return s.pack(p, etcd) }},
		},
	}.Build()
	if err != nil {
		return fmt.Errorf("cannot make the tests' images: %w", err)
	}
	for _, full := range list {
		name, public := strings.CutPrefix(full, "registry.k8s.io/")
		config, known := configs[strings.Split(filepath.Base(name), ":")[0]]
		if !public || !known {
			continue
		}
		config.Env = []string{searchPath}
		image, err := mutate.Config(base, config)
		if err == nil {
			err = images.Push(ctx, lab.ControlURL, name, image)
		}
		if err != nil {
			return fmt.Errorf("cannot make the image %s: %w", name, err)
		}
	}
	return nil
}

// pack writes the suite's programs and files. Each test looks up its image's picture in data.json.
func (s *Suite) pack(p *oci.Packer, etcd string) error {
	errs := []error{
		p.File("data.json", []byte(`{"image": "nautilus.jpg, kitten.jpg"}`), 0o644),
		p.Dir("tmp", 0o1777, 0), p.Dir("var/tmp", 0o1777, 0), p.Dir("uploads", 0o755, 0),
		p.Copy("usr/local/bin/etcd", filepath.Join(etcd, "etcd"), 0o755),
		p.Copy("usr/local/bin/nnp", filepath.Join(s.programs, "nnp"), 0o4755),
	}
	for _, program := range []string{"agnhost", "sample-apiserver"} {
		errs = append(errs, p.Copy(program, filepath.Join(s.programs, program), 0o755))
	}
	for _, file := range []string{"localhost.crt", "localhost.key"} {
		errs = append(errs, p.Copy(file, filepath.Join(s.programs, file), 0o644))
	}
	return errors.Join(errs...)
}
