// Package deb makes the Debian packages of the agent, of the provider and of the archive's keyring:
// the same bytes each time, of the same programs. `make packages` and the laboratory call it.
package deb

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Release is what packages are made of.
type Release struct {
	// Version is that of Debian (see Version); Commit is what the programs were built from, at Time.
	Version, Commit string
	Time            time.Time
	Maintainer      string
	// Programs is the directory of ARCHITECTURE/PROGRAM; those of Native run on this machine.
	Programs, Native string
	// Key is the public key of the archive, not armored.
	Key []byte
	// Fast compresses little: for tests.
	Fast bool
}

// item is a file of a package, or a directory if its mode says so.
type item struct {
	path string
	mode os.FileMode
	data []byte
	// source is a file with the content, in the place of data.
	source string
}

// Package is one package.
type Package struct {
	Name, Arch string
	control    [][2]string
	scripts    map[string]string
	items      []item
	release    Release
}

// File is the name of its file.
func (p Package) File() string {
	return p.Name + "_" + p.release.Version + "_" + p.Arch + ".deb"
}

// Write makes the package in a directory, and returns its file.
func (p Package) Write(ctx context.Context, dir string) (string, error) {
	tree, err := os.MkdirTemp(dir, p.Name+"-")
	if err != nil {
		return "", fmt.Errorf("cannot make a package: %w", err)
	}
	defer os.RemoveAll(tree)
	file := filepath.Join(dir, p.File())
	err = p.stage(tree)
	if err == nil {
		err = p.pack(ctx, tree, file)
	}
	if err != nil {
		return "", fmt.Errorf("cannot make %s: %w", p.File(), err)
	}
	return file, nil
}

// pack runs dpkg-deb, to which newer times than that of the release are that one.
func (p Package) pack(ctx context.Context, tree, file string) error {
	compression := []string{"-Zxz"}
	if p.release.Fast {
		compression = []string{"-Zgzip", "-z1"}
	}
	args := append([]string{"--root-owner-group", "--build"}, compression...)
	cmd := exec.CommandContext(ctx, "dpkg-deb", append(args, tree, file)...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", p.release.Time.Unix()))
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("dpkg-deb: %w: %s", err, bytes.TrimSpace(said))
	}
	return nil
}

// stage writes the tree that dpkg-deb packs.
func (p Package) stage(tree string) error {
	var sums strings.Builder
	size := 0
	items := slices.Clone(p.items)
	slices.SortFunc(items, func(a, b item) int { return strings.Compare(a.path, b.path) })
	for _, i := range items {
		if i.mode.IsDir() {
			size++
			if err := directory(filepath.Join(tree, i.path), i.mode.Perm()); err != nil {
				return err
			}
			continue
		}
		data := i.data
		if i.source != "" {
			var err error
			if data, err = os.ReadFile(i.source); err != nil {
				return err
			}
		}
		size += (len(data) + 1023) / 1024
		fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(data), i.path)
		if err := put(filepath.Join(tree, i.path), i.mode, data); err != nil {
			return err
		}
	}
	control := filepath.Join(tree, "DEBIAN")
	errs := []error{
		put(filepath.Join(control, "md5sums"), 0o644, []byte(sums.String())),
		put(filepath.Join(control, "control"), 0o644, p.controlFile(size)),
	}
	for name, text := range p.scripts {
		errs = append(errs, put(filepath.Join(control, name), 0o755, []byte(text)))
	}
	return errors.Join(append(errs, os.Chmod(tree, 0o755))...)
}

func (p Package) controlFile(size int) []byte {
	var text bytes.Buffer
	for _, f := range append([][2]string{
		{"Package", p.Name}, {"Version", p.release.Version}, {"Architecture", p.Arch},
		{"Maintainer", p.release.Maintainer}, {"Installed-Size", fmt.Sprint(size)},
	}, p.control...) {
		fmt.Fprintf(&text, "%s: %s\n", f[0], f[1])
	}
	return text.Bytes()
}

// put writes a file with exactly that mode, and its directories as Debian has them.
func put(path string, mode os.FileMode, data []byte) error {
	return errors.Join(directory(filepath.Dir(path), 0o755), os.WriteFile(path, data, mode),
		os.Chmod(path, mode))
}

// directory makes a directory with exactly that mode, whatever the umask; one that is there keeps
// its own.
func directory(path string, mode os.FileMode) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	if err := directory(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return errors.Join(os.Mkdir(path, mode), os.Chmod(path, mode))
}

// compressed is data as gzip -9n makes it.
func compressed(data []byte) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err == nil {
		_, err = z.Write(data)
	}
	if err == nil {
		err = z.Close()
	}
	return out.Bytes(), err
}
