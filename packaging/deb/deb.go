// Package deb makes the Debian packages of the agent, the provider and the archive's keyring,
// reproducibly. `make packages` and the lab use it.
package deb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/goreleaser/nfpm/v2"
	debian "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"

	"github.com/Azure/AKSFlexNode/packaging"
)

// Release describes the release to package.
type Release struct {
	// Version is the Debian version (see Version). The programs were built from Commit at Time.
	Version, Commit string
	Time            time.Time
	Maintainer      string
	// Programs is the directory with ARCHITECTURE/PROGRAM. Native is this machine's architecture.
	Programs, Native string
	// Key holds the archive's public keys, not armored.
	Key []byte
	// Fast compresses little, for tests.
	Fast bool
}

// The names of the packages.
const (
	Agent    = "aks-flex-node"
	Provider = "flexnode-rp"
	Keyring  = "aks-flex-node-archive-keyring"
)

// Write makes the packages of the keyring and of the programs for some architectures in a
// directory, and returns their files.
func (r Release) Write(
	ctx context.Context, dir string, programs, archs []string,
) (files []string, err error) {
	err = os.MkdirAll(dir, 0o755)
	add := func(name, arch string, fill func(*builder)) {
		if err == nil {
			var file string
			file, err = r.write(dir, name, arch, fill)
			files = append(files, file)
		}
	}
	add(Keyring, "all", r.keyring)
	for _, arch := range archs {
		for _, name := range programs {
			add(name, arch, func(b *builder) { r.program(ctx, b) })
		}
	}
	return files, err
}

// write makes the package that fill describes and returns its file.
func (r Release) write(dir, name, arch string, fill func(*builder)) (string, error) {
	stage, err := os.MkdirTemp(dir, name+"-")
	if err != nil {
		return "", fmt.Errorf("cannot make a package: %w", err)
	}
	defer os.RemoveAll(stage)
	b := &builder{stage: stage, Info: nfpm.Info{Name: name, Arch: arch, Platform: "linux",
		Version: r.Version, VersionSchema: "none", Section: "admin", Priority: "optional",
		Maintainer: r.Maintainer, Homepage: homepage, MTime: r.Time.UTC(), DisableGlobbing: true}}
	b.Deb.Compression = "xz"
	if r.Fast {
		b.Deb.Compression = "gzip:1"
	}
	fill(b)
	r.document(b)
	file := filepath.Join(dir, debian.Default.ConventionalFileName(&b.Info))
	if b.err == nil {
		f, err := os.Create(file)
		b.fail(err)
		b.fail(errors.Join(debian.Default.Package(&b.Info, f), f.Close()))
	}
	if b.err != nil {
		return "", fmt.Errorf("cannot make %s: %w", filepath.Base(file), b.err)
	}
	return file, nil
}

// builder builds a package and keeps the first error.
type builder struct {
	nfpm.Info
	// stage is a directory for generated files, count their number.
	stage string
	count int
	err   error
}

// put adds a file with the given content.
func (b *builder) put(path, text string) { b.add(path, 0o644, b.staged(text)) }

// compressed adds a file compressed with gzip -9n.
func (b *builder) compressed(path, text string) {
	b.put(path+".gz", string(packaging.Gzip([]byte(text))))
}

// staged writes a file to the stage and returns its path.
func (b *builder) staged(text string) string {
	b.count++
	file := filepath.Join(b.stage, strconv.Itoa(b.count))
	b.fail(os.WriteFile(file, []byte(text), 0o600))
	return file
}

// add adds a file or a directory. It follows a symbolic link in source.
func (b *builder) add(path string, mode fs.FileMode, source string) {
	kind := files.TypeDir
	if !mode.IsDir() {
		file, err := filepath.EvalSymlinks(source)
		b.fail(err)
		kind, source = files.TypeFile, file
	}
	b.Contents = append(b.Contents, &files.Content{Destination: "/" + path, Source: source, Type: kind,
		FileInfo: &files.ContentFileInfo{Mode: mode.Perm(), MTime: b.MTime}})
}

func (b *builder) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}
