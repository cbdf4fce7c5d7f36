// Package apt makes repositories of Debian packages: the index, by name and by digest, and its
// signature. Publishing is copying the directory. The laboratory serves machines from such a one.
package apt

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Repository is what a repository says of itself (wiki.debian.org/DebianRepository/Format).
// unattended-upgrades and pins go by Origin, Label, Suite and Codename.
type Repository struct {
	Origin, Label, Suite, Codename string
	Architectures                  []string
	// Date is when it was made. From ValidUntil on clients refuse it, so that nobody can keep an old
	// one up without being noticed; the zero time is never.
	Date, ValidUntil time.Time
}

// component is the only one.
const component = "main"

// Write puts packages into the pool of a directory and writes the index of exactly these. Former
// indexes remain by their digests, for clients that are reading them.
func (r Repository) Write(ctx context.Context, dir string, packages []string) error {
	stanzas := map[string]*bytes.Buffer{}
	for _, arch := range r.Architectures {
		stanzas[arch] = &bytes.Buffer{}
	}
	for _, file := range slices.Sorted(slices.Values(packages)) {
		arch, stanza, err := pool(ctx, dir, file)
		if err != nil {
			return fmt.Errorf("cannot add %s to the repository: %w", filepath.Base(file), err)
		}
		for _, a := range r.Architectures {
			if arch == a || arch == "all" {
				stanzas[a].Write(stanza)
			}
		}
	}
	suite := filepath.Join(dir, "dists", r.Suite)
	var sums strings.Builder
	for _, arch := range r.Architectures {
		for name, data := range map[string][]byte{
			"Packages": stanzas[arch].Bytes(), "Packages.gz": zipped(stanzas[arch].Bytes()),
		} {
			sum := fmt.Sprintf("%x", sha256.Sum256(data))
			list := filepath.Join(component, "binary-"+arch)
			if err := errors.Join(put(filepath.Join(suite, list, "by-hash/SHA256", sum), data),
				put(filepath.Join(suite, list, name), data)); err != nil {
				return err
			}
			fmt.Fprintf(&sums, " %s %d %s\n", sum, len(data), filepath.Join(list, name))
		}
	}
	return put(filepath.Join(suite, "Release"), []byte(r.release()+"SHA256:\n"+sums.String()))
}

// release is the head of the file Release.
func (r Repository) release() string {
	const layout = "Mon, 02 Jan 2006 15:04:05 UTC"
	var text strings.Builder
	for _, f := range [][2]string{
		{"Origin", r.Origin}, {"Label", r.Label}, {"Suite", r.Suite}, {"Codename", r.Codename},
		{"Date", r.Date.UTC().Format(layout)}, {"Valid-Until", r.ValidUntil.UTC().Format(layout)},
		{"Acquire-By-Hash", "yes"}, {"Architectures", strings.Join(r.Architectures, " ")},
		{"Components", component},
	} {
		if f[0] != "Valid-Until" || !r.ValidUntil.IsZero() {
			fmt.Fprintf(&text, "%s: %s\n", f[0], f[1])
		}
	}
	return text.String()
}

// pool copies a package to its place, and returns its architecture and its entry of the index.
func pool(ctx context.Context, dir, file string) (arch string, stanza []byte, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", nil, err
	}
	out, err := exec.CommandContext(ctx, "dpkg-deb", "--field", file).Output()
	if err != nil {
		return "", nil, fmt.Errorf("cannot read its description: %w", err)
	}
	control := strings.TrimSpace(string(out))
	name, arch := field(control, "Package"), field(control, "Architecture")
	if name == "" || arch == "" {
		return "", nil, errors.New("it does not say its name and architecture")
	}
	path := filepath.Join("pool", component, name[:1], name, filepath.Base(file))
	stanza = fmt.Appendf(nil, "%s\nFilename: %s\nSize: %d\nSHA256: %x\n\n", control, path, len(data),
		sha256.Sum256(data))
	return arch, stanza, put(filepath.Join(dir, path), data)
}

func field(control, name string) string {
	for line := range strings.Lines(control) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
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
	if err := directory(filepath.Dir(path)); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(path+".new", data, 0o644), os.Chmod(path+".new", 0o644),
		os.Rename(path+".new", path))
}

// directory makes a directory that is not there, and those above it.
func directory(path string) error {
	err := os.Mkdir(path, 0o755)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		if err := directory(filepath.Dir(path)); err != nil {
			return err
		}
		return directory(path)
	case err != nil:
		return err
	}
	return os.Chmod(path, 0o755)
}
