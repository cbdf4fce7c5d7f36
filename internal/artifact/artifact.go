// Package artifact gets the binaries that a node is made of: it knows where each is published and
// what its digest is, downloads it from mirrors or upstream, verifies it while it arrives, and
// unpacks it into a content-addressed store. It does not install anything: a store entry becomes
// visible on the host through links that others make. The agent's verbs call Resolve, then
// Fetcher.Run beside their other work, and Collect at the end.
package artifact

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Name names one artifact; it is also the key of its entry in artifacts.overrides.
type Name string

// The artifacts of a node.
const (
	Containerd Name = "containerd"
	Kubelet    Name = "kubelet"
	Runc       Name = "runc"
	CNIPlugins Name = "cni-plugins"
	Kubectl    Name = "kubectl"
	Kubeadm    Name = "kubeadm"
	NPD        Name = "node-problem-detector"
)

// Names lists every artifact, those without which a node cannot become Ready first.
func Names() []Name {
	return []Name{Containerd, Kubelet, Runc, CNIPlugins, Kubectl, Kubeadm, NPD}
}

// Spec says what is wanted.
type Spec struct {
	Name Name
	// Version is the release, with or without a leading "v".
	Version string
	// Arch is amd64 or arm64.
	Arch string
	// URL, when set, replaces the upstream URL (runc.url, kubernetes.urlTemplate); the digest
	// remains that of the release.
	URL string
}

// Format is how an artifact is published.
type Format string

// A binary becomes <store>/<id>/<name>; an archive is unpacked below <store>/<id>/.
const (
	Binary Format = "binary"
	TarGz  Format = "tar.gz"
)

// Artifact is one published file, resolved: everything that is needed to get it and to know that it
// is the right one.
type Artifact struct {
	Name    Name
	Version string
	Arch    string
	// URL is where upstream publishes the file. It may carry credentials: show Redact(URL).
	URL    string
	Format Format
	// ID is the digest of the published file in lower-case hex, and the name of its directory in
	// the store: SHA-256 (64 digits), or SHA-512 (128 digits) for releases that publish nothing
	// else.
	ID string
	// TarSHA256 is the digest of the uncompressed tar of an archive, or empty; with it a .tar.zst
	// variant can be used.
	TarSHA256 string
	// Size is the length of the published file in bytes, 0 when unknown. It serves progress, never
	// verification.
	Size int64
	// Late artifacts are not needed for a node to be Ready and leave the bandwidth to the others.
	Late bool
}

// String gives the name and version, for messages.
func (a Artifact) String() string { return fmt.Sprintf("%s %s", a.Name, a.Version) }

func (n Name) format() Format {
	switch n {
	case Containerd, CNIPlugins, NPD:
		return TarGz
	}
	return Binary
}

func (n Name) late() bool { return n == Kubectl || n == Kubeadm || n == NPD }

// upstream is where the project behind an artifact publishes a release; version has no leading "v".
func upstream(n Name, version, arch string) string {
	const github = "https://github.com/%s/releases/download/v%s/%s"
	of := func(project, file string) string { return fmt.Sprintf(github, project, version, file) }
	switch n {
	case Kubelet, Kubectl, Kubeadm:
		return fmt.Sprintf("https://dl.k8s.io/v%s/bin/linux/%s/%s", version, arch, n)
	case Containerd:
		return of("containerd/containerd", "containerd-"+version+"-linux-"+arch+".tar.gz")
	case Runc:
		return of("opencontainers/runc", "runc."+arch)
	case CNIPlugins:
		return of("containernetworking/plugins", "cni-plugins-linux-"+arch+"-v"+version+".tgz")
	case NPD:
		return of("kubernetes/node-problem-detector",
			"node-problem-detector-v"+version+"-linux_"+arch+".tar.gz")
	}
	return ""
}

// check finds mistakes in a spec that would otherwise end up in a URL or a path.
func (s Spec) check() error {
	switch {
	case !slices.Contains(Names(), s.Name):
		return fmt.Errorf("internal error: unknown artifact %q", s.Name)
	case !regexp.MustCompile(`^v?[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.-]+)?$`).MatchString(
		s.Version):
		return fmt.Errorf("cannot use version %q of %s: it is not of the form 1.2.3", s.Version,
			s.Name)
	case s.Arch != "amd64" && s.Arch != "arm64":
		return fmt.Errorf("cannot use architecture %q for %s: only amd64 and arm64 are supported",
			s.Arch, s.Name)
	}
	return nil
}

// zstURL names the zstd variant of the file at raw, or "" where there can be none.
func (a Artifact) zstURL(raw string) string {
	if a.Format == Binary {
		return raw + ".zst"
	}
	for _, suffix := range []string{".tar.gz", ".tgz"} {
		if stem, ok := strings.CutSuffix(raw, suffix); ok && a.TarSHA256 != "" {
			return stem + ".tar.zst"
		}
	}
	return ""
}

// Redact shows a URL without what may be secret in it: user, password, query and fragment.
func Redact(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "[unreadable URL]"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

func baseName(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return path.Base(raw)
	}
	return path.Base(u.Path)
}
