package mirror

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/Azure/AKSFlexNode/lab/component"
)

const (
	// format is part of a packed directory's name; it changes with the packing.
	format   = "2"
	filesDir = "files"
)

// Pack makes the files that a component's project publishes, each with a zstd variant, from the
// directory that component.Builder returned. They are packed once into the cache, reproducibly. For
// a component that nodes do not need, the catalog is empty.
func Pack(
	ctx context.Context, cache string, c component.Component, programs string,
) (Catalog, error) {
	releases := published(c.Name, c.Version, runtime.GOARCH)
	if len(releases) == 0 {
		return Catalog{}, nil
	}
	dir := filepath.Join(cache, "mirror-"+filepath.Base(programs)+"-"+format)
	err := component.Once(ctx, dir, func() {}, func(work string) error {
		p := packer{
			programs: programs, root: filepath.Join(work, filesDir),
			catalog: Catalog{Files: map[string]File{}},
		}
		for _, r := range releases {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := p.release(r, c.Version); err != nil {
				return err
			}
		}
		return p.catalog.write(work)
	})
	if err != nil {
		return Catalog{}, fmt.Errorf("cannot pack %s: %w", c, err)
	}
	return readCatalog(dir)
}

// packer packs a component into a directory.
type packer struct {
	programs string
	root     string
	catalog  Catalog
}

func (p *packer) release(r release, version string) error {
	a := Artifact{Name: r.name, Version: version, Arch: runtime.GOARCH, Path: r.path}
	to := filepath.Join(p.root, filepath.FromSlash(r.path))
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	var zst string
	var err error
	if r.entries == nil {
		zst, err = p.binary(r, to)
	} else {
		zst, err = p.archive(r, to, &a)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(p.add(r.path), p.add(zst)); err != nil {
		return err
	}
	file := p.catalog.Files[r.path]
	a.Size, a.SHA256, a.Compressed = file.Size, file.SHA256, p.catalog.Files[zst].Size
	p.catalog.Artifacts = append(p.catalog.Artifacts, a)
	return p.checksum(r, a)
}

// binary hard-links the program, which takes no space, and compresses it.
func (p *packer) binary(r release, to string) (zst string, err error) {
	from := filepath.Join(p.programs, r.program)
	if err := os.Link(from, to); err != nil {
		if err := copyFile(to, from); err != nil {
			return "", err
		}
	}
	in, err := os.Open(from)
	if err != nil {
		return "", err
	}
	defer in.Close()
	return r.path + ".zst", compress(to+".zst", in)
}

// archive writes the tar once, for the digest and both compressors.
func (p *packer) archive(r release, to string, a *Artifact) (zst string, err error) {
	tarball := to + ".tar"
	defer os.Remove(tarball)
	sum := sha256.New()
	if err := writeTar(tarball, p.programs, r.entries, sum); err != nil {
		return "", err
	}
	a.TarSHA256 = hex.EncodeToString(sum.Sum(nil))
	if err := gzipFile(to, tarball); err != nil {
		return "", err
	}
	in, err := os.Open(tarball)
	if err != nil {
		return "", err
	}
	defer in.Close()
	stem := strings.TrimSuffix(strings.TrimSuffix(r.path, ".tar.gz"), ".tgz")
	return stem + ".tar.zst", compress(
		filepath.Join(p.root, filepath.FromSlash(stem+".tar.zst")), in,
	)
}

// compress takes a second for kubelet; the best level saves an eighth and takes nine seconds.
func compress(to string, in io.Reader) error {
	return create(to, func(out io.Writer) error {
		z, err := zstd.NewWriter(
			out, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(1),
		)
		if err != nil {
			return err
		}
		if _, err := io.Copy(z, in); err != nil {
			return errors.Join(err, z.Close())
		}
		return z.Close()
	})
}

// checksum writes a release's checksum file in its project's format.
func (p *packer) checksum(r release, a Artifact) error {
	if r.sums == "" {
		return nil
	}
	text := a.SHA256
	if !r.bareSum {
		text += "  " + path.Base(r.path) + "\n"
	}
	file := filepath.Join(p.root, filepath.FromSlash(r.sums))
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	return p.add(r.sums)
}

// add adds a written file to the catalog.
func (p *packer) add(path string) error {
	f, err := os.Open(filepath.Join(p.root, filepath.FromSlash(path)))
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	if err != nil {
		return err
	}
	p.catalog.Files[path] = File{Size: size, SHA256: hex.EncodeToString(sum.Sum(nil))}
	return nil
}

func create(path string, write func(io.Writer) error) error {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if err := write(out); err != nil {
		return errors.Join(err, out.Close())
	}
	return out.Close()
}

// release is a published file: a program, or an archive with entries.
type release struct {
	name string
	path string
	// program is the program's file in the component's directory.
	program string
	entries []entry
	// sums is the path of the checksum file; bareSum reports whether it contains only the digest.
	sums    string
	bareSum bool
}

// published returns the files that a component's project publishes for a version and architecture,
// with their paths at dl.k8s.io and at the projects' release pages.
func published(name, version, arch string) []release {
	const github = "/github.com/"
	switch name {
	case component.KubernetesNode:
		var list []release
		for _, program := range []string{"kubelet", "kubectl", "kubeadm"} {
			at := fmt.Sprintf("/dl.k8s.io/v%s/bin/linux/%s/%s", version, arch, program)
			list = append(
				list,
				release{
					name: program, path: at, program: program, sums: at + ".sha256",
					bareSum: true,
				},
			)
		}
		return list
	case component.Containerd:
		at := fmt.Sprintf(
			github+"containerd/containerd/releases/download/v%[1]s/containerd-%[1]s-linux-%[2]s.tar.gz",
			version, arch,
		)
		return []release{
			{
				name: name, path: at, sums: at + ".sha256sum",
				entries: below("bin/", "containerd", "containerd-shim-runc-v2", "ctr"),
			},
		}
	case component.Runc:
		at := fmt.Sprintf(github+"opencontainers/runc/releases/download/v%s/", version)
		return []release{
			{name: name, path: at + "runc." + arch, program: "runc", sums: at + "runc.sha256sum"},
		}
	case component.CNIPlugins:
		at := fmt.Sprintf(
			github+"containernetworking/plugins/releases/download/v%[1]s/"+
				"cni-plugins-linux-%[2]s-v%[1]s.tgz",
			version, arch,
		)
		return []release{
			{name: name, path: at, sums: at + ".sha256", entries: below("./", cniFiles()...)},
		}
	case component.NodeProblemDetector:
		at := fmt.Sprintf(
			github+"kubernetes/node-problem-detector/releases/download/v%[1]s/"+
				"node-problem-detector-v%[1]s-linux_%[2]s.tar.gz",
			version, arch,
		)
		return []release{{name: name, path: at, entries: slices.Concat(
			below("bin/", "node-problem-detector"),
			below(
				"config/", "kernel-monitor.json", "readonly-monitor.json", "systemd-monitor.json",
			),
		)}}
	}
	return nil
}

func cniFiles() []string {
	return []string{
		"LICENSE", "bandwidth", "bridge", "dhcp", "dummy", "firewall", "host-device",
		"host-local", "ipvlan", "loopback", "macvlan", "portmap", "ptp", "sbr", "static", "tap",
		"tuning", "vlan", "vrf",
	}
}
