// Package apt makes repositories of Debian packages: the index, by name and by digest, and its
// signature. To publish one, copy the directory. The lab serves packages to its machines from one.
package apt

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"pault.ag/go/debian/deb"
	"pault.ag/go/debian/version"

	"github.com/Azure/AKSFlexNode/packaging"
)

// Repository describes a repository (wiki.debian.org/DebianRepository/Format). unattended-upgrades
// and pins match Origin, Label and Suite.
type Repository struct {
	Origin, Label, Suite string
	Architectures        []string
	// Date is when the index was made. From ValidUntil on, clients refuse it, so that a server cannot
	// keep serving an old one unnoticed; the zero time means never.
	Date, ValidUntil time.Time
	// Keep is the number of versions of a package in the index, the newest, so that machines can go
	// back. 0 keeps all.
	Keep int
}

// component is the repository's only component.
const component = "main"

// entry is a package: its control fields for the index and its path in the repository.
type entry struct {
	deb.Control
	path string
}

// Write adds packages to the pool of a directory, writes the index of the versions to keep and
// removes older ones. Previous indexes stay available by digest for clients that are reading them.
func (r Repository) Write(dir string, packages ...string) error {
	for _, file := range packages {
		if err := add(dir, file); err != nil {
			return fmt.Errorf("cannot add %s to the repository: %w", filepath.Base(file), err)
		}
	}
	kept, old, err := r.choose(dir)
	if err != nil {
		return err
	}
	suite := filepath.Join(dir, "dists", r.Suite)
	sums := ""
	for _, arch := range r.Architectures {
		text, err := index(kept, arch)
		if err != nil {
			return err
		}
		for _, name := range []string{"Packages", "Packages.gz"} {
			if name == "Packages.gz" {
				text = packaging.Gzip(text)
			}
			list, sum := filepath.Join(component, "binary-"+arch), fmt.Sprintf("%x", sha256.Sum256(text))
			if err := errors.Join(put(filepath.Join(suite, list, "by-hash/SHA256", sum), text),
				put(filepath.Join(suite, list, name), text)); err != nil {
				return err
			}
			sums += fmt.Sprintf(" %s %d %s\n", sum, len(text), filepath.Join(list, name))
		}
	}
	if err := put(filepath.Join(suite, "Release"), []byte(r.release()+sums)); err != nil {
		return err
	}
	for _, e := range old {
		err = errors.Join(err, os.Remove(filepath.Join(dir, e.path)))
	}
	return err
}

// release returns the file Release without the digests of the indexes.
func (r Repository) release() string {
	const layout = "Mon, 02 Jan 2006 15:04:05 UTC"
	text := fmt.Sprintf("Origin: %s\nLabel: %s\nSuite: %s\nCodename: %s\nDate: %s\n", r.Origin,
		r.Label, r.Suite, r.Suite, r.Date.UTC().Format(layout))
	if !r.ValidUntil.IsZero() {
		text += "Valid-Until: " + r.ValidUntil.UTC().Format(layout) + "\n"
	}
	return text + fmt.Sprintf("Acquire-By-Hash: yes\nArchitectures: %s\nComponents: %s\nSHA256:\n",
		strings.Join(r.Architectures, " "), component)
}

// add copies a package to its place in the pool. A published version never changes: a machine may
// have the index with its digest.
func add(dir, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	e, err := read(file)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, e.path)
	if there, err := os.ReadFile(path); err == nil && !bytes.Equal(there, data) {
		return errors.New("this version was published with other contents: give it another version")
	}
	return put(path, data)
}

// read returns the entry of a package, which need not be in the pool.
func read(file string) (entry, error) {
	d, closeFile, err := deb.LoadFile(file)
	if err != nil {
		return entry{}, fmt.Errorf("cannot read its description: %w", err)
	}
	data, err := os.ReadFile(file)
	e := entry{d.Control, filepath.Join("pool", component, d.Control.Package[:1], d.Control.Package,
		filepath.Base(file))}
	e.Set("Filename", e.path)
	e.Set("Size", fmt.Sprint(len(data)))
	e.Set("SHA256", fmt.Sprintf("%x", sha256.Sum256(data)))
	return e, errors.Join(err, closeFile())
}

// choose returns the pool's packages by name and architecture, newest first, split into those to
// keep and older ones.
func (r Repository) choose(dir string) (kept, old []entry, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "pool", component, "*", "*", "*.deb"))
	var all []entry
	for _, file := range files {
		e, problem := read(file)
		if problem != nil {
			return nil, nil, fmt.Errorf("cannot index %s: %w", file, problem)
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(strings.Compare(a.key(), b.key()), version.Compare(b.Version, a.Version))
	})
	count := map[string]int{}
	for _, e := range all {
		if count[e.key()]++; r.Keep == 0 || count[e.key()] <= r.Keep {
			kept = append(kept, e)
		} else {
			old = append(old, e)
		}
	}
	return kept, old, err
}

// key returns the name and architecture, which all versions of a package share.
func (e entry) key() string { return e.Package + " " + e.Architecture.String() }

// index returns the Packages file for an architecture.
func index(list []entry, arch string) ([]byte, error) {
	var out bytes.Buffer
	for _, e := range list {
		if is := e.Architecture.String(); is != arch && is != "all" {
			continue
		}
		if err := e.WriteTo(&out); err != nil {
			return nil, err
		}
		out.WriteString("\n")
	}
	return out.Bytes(), nil
}

// put writes a file atomically, readable for all whatever the umask.
func put(path string, data []byte) error {
	defer syscall.Umask(syscall.Umask(0o022))
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path+".new", data, 0o644),
		os.Rename(path+".new", path))
}
