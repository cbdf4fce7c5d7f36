// Package apt makes repositories of Debian packages: the index, by name and by digest, and its
// signature. Publishing is copying the directory. The laboratory serves machines from such a one.
package apt

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"pault.ag/go/debian/control"
	"pault.ag/go/debian/deb"
	"pault.ag/go/debian/version"
)

// Repository describes a repository (wiki.debian.org/DebianRepository/Format). unattended-upgrades
// and pins go by Origin, Label and Suite.
type Repository struct {
	Origin, Label, Suite string
	Architectures        []string
	// Date is when it was made. From ValidUntil on clients refuse it, so that nobody can keep an old
	// one up without being noticed; the zero time is never.
	Date, ValidUntil time.Time
	// Keep is how many versions of a package the index has: the newest, so that machines can go back.
	// Zero keeps all.
	Keep int
}

// component is the only one.
const component = "main"

// entry is a package of the pool with its paragraph of the index.
type entry struct {
	file, name, arch string
	version          version.Version
	paragraph        control.Paragraph
}

// Write adds packages to the pool of a directory and writes the index of all that it keeps.
// Previous indexes remain by their digests, for clients that are reading them.
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
	var sums []string
	for _, arch := range r.Architectures {
		text, err := index(kept, arch)
		if err != nil {
			return err
		}
		list := filepath.Join(component, "binary-"+arch)
		for _, f := range []struct {
			name string
			data []byte
		}{{"Packages", text}, {"Packages.gz", zipped(text)}} {
			sum := fmt.Sprintf("%x", sha256.Sum256(f.data))
			if err := errors.Join(put(filepath.Join(suite, list, "by-hash/SHA256", sum), f.data),
				put(filepath.Join(suite, list, f.name), f.data)); err != nil {
				return err
			}
			sums = append(sums, fmt.Sprintf("%s %d %s", sum, len(f.data), filepath.Join(list, f.name)))
		}
	}
	var release bytes.Buffer
	about := r.release(sums)
	if err := about.WriteTo(&release); err != nil {
		return err
	}
	if err := put(filepath.Join(suite, "Release"), release.Bytes()); err != nil {
		return err
	}
	for _, e := range old {
		if err := os.Remove(e.file); err != nil {
			return fmt.Errorf("cannot remove an old version: %w", err)
		}
	}
	return nil
}

// release returns the file Release.
func (r Repository) release(sums []string) control.Paragraph {
	const layout = "Mon, 02 Jan 2006 15:04:05 UTC"
	p := control.Paragraph{Values: map[string]string{}}
	p.Set("Origin", r.Origin)
	p.Set("Label", r.Label)
	p.Set("Suite", r.Suite)
	p.Set("Codename", r.Suite)
	p.Set("Date", r.Date.UTC().Format(layout))
	if !r.ValidUntil.IsZero() {
		p.Set("Valid-Until", r.ValidUntil.UTC().Format(layout))
	}
	p.Set("Acquire-By-Hash", "yes")
	p.Set("Architectures", strings.Join(r.Architectures, " "))
	p.Set("Components", component)
	p.Set("SHA256", "\n"+strings.Join(sums, "\n"))
	return p
}

// add copies a package to its place in the pool. What is published under a version stays what it
// is: a machine may have the index with its digest.
func add(dir, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	e, err := read(file)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "pool", component, e.name[:1], e.name, filepath.Base(file))
	if there, err := os.ReadFile(path); err == nil && !bytes.Equal(there, data) {
		return errors.New("this version was published with other contents: give it another version")
	}
	return put(path, data)
}

// read returns what a package says of itself.
func read(file string) (entry, error) {
	d, closeFile, err := deb.LoadFile(file)
	if err != nil {
		return entry{}, fmt.Errorf("cannot read its description: %w", err)
	}
	c := d.Control
	return entry{file, c.Package, c.Architecture.String(), c.Version, c.Paragraph}, closeFile()
}

// choose returns the packages of the pool that are kept, by name and architecture, the newest first;
// and those that are not.
func (r Repository) choose(dir string) (kept, old []entry, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "pool", component, "*", "*", "*.deb"))
	var all []entry
	for _, file := range files {
		e, problem := read(file)
		if problem == nil {
			e.paragraph, problem = described(dir, e)
		}
		if problem != nil {
			err = errors.Join(err, fmt.Errorf("cannot index %s: %w", file, problem))
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.arch, b.arch),
			version.Compare(b.version, a.version))
	})
	count := map[[2]string]int{}
	for _, e := range all {
		of := [2]string{e.name, e.arch}
		count[of]++
		if r.Keep == 0 || count[of] <= r.Keep {
			kept = append(kept, e)
		} else {
			old = append(old, e)
		}
	}
	return kept, old, err
}

// described returns the paragraph of a package with where it is and its digest.
func described(dir string, e entry) (control.Paragraph, error) {
	data, err := os.ReadFile(e.file)
	if err != nil {
		return e.paragraph, err
	}
	path, err := filepath.Rel(dir, e.file)
	e.paragraph.Set("Filename", path)
	e.paragraph.Set("Size", fmt.Sprint(len(data)))
	e.paragraph.Set("SHA256", fmt.Sprintf("%x", sha256.Sum256(data)))
	return e.paragraph, err
}

// index returns the packages that machines of an architecture can install.
func index(list []entry, arch string) ([]byte, error) {
	var out bytes.Buffer
	for _, e := range list {
		if e.arch != arch && e.arch != "all" {
			continue
		}
		if err := e.paragraph.WriteTo(&out); err != nil {
			return nil, err
		}
		out.WriteString("\n")
	}
	return out.Bytes(), nil
}

// zipped is data as gzip makes it, without a time.
func zipped(data []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(data) // a buffer takes everything
	_ = z.Close()
	return out.Bytes()
}

// put writes a file whole, in the place of another one, for all to read whatever the umask.
func put(path string, data []byte) error {
	defer syscall.Umask(syscall.Umask(0o022))
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path+".new", data, 0o644),
		os.Rename(path+".new", path))
}
