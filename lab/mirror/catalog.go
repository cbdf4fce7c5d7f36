package mirror

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/config"
	releases "github.com/Azure/AKSFlexNode/internal/release"
)

// Artifact is a file of which nodes are made, as its project publishes it.
type Artifact struct {
	// Name is the agent's name for it: kubelet, kubectl, kubeadm, containerd, runc, cni-plugins,
	// node-problem-detector.
	Name    string `json:"name"`
	Version string `json:"version"`
	Arch    string `json:"arch"`
	// Path is the URL path below the mirror's base URL: /<upstream host>/<upstream path>.
	Path string `json:"path"`
	// Size and SHA256 are those of the file at Path; TarSHA256 is that of the tar inside it, "" for a
	// binary.
	Size      int64  `json:"size"`
	SHA256    string `json:"sha256"`
	TarSHA256 string `json:"tarSHA256,omitempty"`
	// Compressed is the length of the zstd variant.
	Compressed int64 `json:"compressed"`
}

// File is a file on the mirror: an artifact, its zstd variant or its checksum.
type File struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// Local is its path on the host.
	Local string `json:"-"`
}

// Catalog is everything that a mirror serves.
type Catalog struct {
	Artifacts []Artifact `json:"artifacts"`
	// Files is keyed by URL path.
	Files map[string]File `json:"files"`
}

// Merge merges catalogs.
func Merge(list ...Catalog) Catalog {
	all := Catalog{Files: map[string]File{}}
	for _, c := range list {
		all.Artifacts = append(all.Artifacts, c.Artifacts...)
		maps.Copy(all.Files, c.Files)
	}
	return all
}

// Artifact returns an artifact by name and version. The error lists the available versions.
func (c Catalog) Artifact(name, version string) (Artifact, error) {
	var versions []string
	for _, a := range c.Artifacts {
		if a.Name != name {
			continue
		}
		if a.Version == version {
			return a, nil
		}
		versions = append(versions, a.Version)
	}
	return Artifact{}, fmt.Errorf("cannot find %s %s in the artifact mirror: it has versions %q",
		name, version, versions)
}

// Has reports whether the catalog has all of these artifacts, versions by name.
func (c Catalog) Has(versions map[string]string) bool {
	for name, version := range versions {
		if _, err := c.Artifact(name, version); err != nil {
			return false
		}
	}
	return true
}

// AllOverrides returns the agent's artifacts.overrides for every artifact.
func (c Catalog) AllOverrides() map[string]config.Override {
	overrides := make(map[string]config.Override, len(c.Artifacts))
	for _, a := range c.Artifacts {
		overrides[releases.Key(a.Name, a.Version)] = a.override()
	}
	return overrides
}

func (a Artifact) override() config.Override {
	return config.Override{SHA256: a.SHA256, TarSHA256: a.TarSHA256, Size: a.Size}
}

// Overrides returns the agent's artifacts.overrides for a choice of versions, by artifact name.
// They are needed because programs built in the lab differ from the projects' releases.
func (c Catalog) Overrides(versions map[string]string) (map[string]config.Override, error) {
	overrides := make(map[string]config.Override, len(versions))
	for name, version := range versions {
		a, err := c.Artifact(name, version)
		if err != nil {
			return nil, err
		}
		overrides[name] = a.override()
	}
	return overrides, nil
}

// Directory copies every file to the same path below dst, which must be empty or missing, for
// air-gapped hosts.
func (c Catalog) Directory(ctx context.Context, dst string) error {
	if err := os.MkdirAll(dst, 0o755); err != nil {
		return err
	}
	if entries, err := os.ReadDir(dst); err != nil || len(entries) > 0 {
		return fmt.Errorf("cannot copy the artifacts to %s: it is not an empty directory", dst)
	}
	for _, path := range slices.Sorted(maps.Keys(c.Files)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		to := filepath.Join(dst, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := copyFile(to, c.Files[path].Local); err != nil {
			return fmt.Errorf("cannot copy %s: %w", path, err)
		}
	}
	return nil
}

// copyFile copies to a new file; the kernel shares blocks if it can.
func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// catalogFile is the name of the catalog beside a component's packed files.
const catalogFile = "catalog.json"

func (c Catalog) write(dir string) error {
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("internal error: cannot encode a catalog: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, catalogFile), text, 0o644)
}

// readCatalog reads a catalog that write wrote.
func readCatalog(dir string) (Catalog, error) {
	text, err := os.ReadFile(filepath.Join(dir, catalogFile))
	if err != nil {
		return Catalog{}, err
	}
	var c Catalog
	if err := json.Unmarshal(text, &c); err != nil {
		return Catalog{}, fmt.Errorf("cannot read the catalog in %s: %w; remove that directory", dir, err)
	}
	for path, f := range c.Files {
		f.Local = filepath.Join(dir, filesDir, filepath.FromSlash(path))
		c.Files[path] = f
	}
	return c, nil
}
