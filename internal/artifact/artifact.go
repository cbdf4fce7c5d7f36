// Package artifact gets the binaries that a node is made of: it knows where each is published and
// what its digest is, downloads it from mirrors or upstream, verifies it while it arrives, and
// unpacks it into a content-addressed store. It does not install anything: a store entry becomes
// visible on the host through links that others make. The agent's verbs call Resolve, then
// Fetcher.Run beside their other work, and Collect at the end.
package artifact

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/release"
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

// project tells how the project behind an artifact publishes it.
type project struct {
	// url is where upstream has the file: {v} is the version without "v", {arch} the architecture.
	url string
	// sums ends the name of the checksum file, after url; or names, after a slash, the one for all
	// architectures. It is "" where upstream has none.
	sums          string
	archive, late bool
	max           int64 // the length in bytes that no file of it has
}

// project returns that of an artifact, the zero one for a name that is unknown.
func (n Name) project() project {
	const k8s = "https://dl.k8s.io/v{v}/bin/linux/{arch}/"
	github := func(project, file string) string {
		return "https://github.com/" + project + "/releases/download/v{v}/" + file
	}
	containerd := github("containerd/containerd", "containerd-{v}-linux-{arch}.tar.gz")
	plugins := github("containernetworking/plugins", "cni-plugins-linux-{arch}-v{v}.tgz")
	detector := github("kubernetes/node-problem-detector",
		"node-problem-detector-v{v}-linux_{arch}.tar.gz")
	const mib = 1 << 20 // the largest releases have about half of these lengths or less
	return map[Name]project{
		Containerd: {containerd, ".sha256sum", true, false, 128 * mib},
		Kubelet:    {k8s + "kubelet", ".sha256", false, false, 256 * mib},
		Runc: {github("opencontainers/runc", "runc.{arch}"), "/runc.sha256sum", false, false,
			64 * mib},
		CNIPlugins: {plugins, ".sha256", true, false, 128 * mib},
		Kubectl:    {k8s + "kubectl", ".sha256", false, true, 256 * mib},
		Kubeadm:    {k8s + "kubeadm", ".sha256", false, true, 256 * mib},
		NPD:        {detector, "", true, true, 256 * mib},
	}[n]
}

// Artifact is one published file, once it is resolved: all that is needed to get it and to know
// that it is the right one. What is wanted has only Name, Version, Arch and perhaps URL.
type Artifact struct {
	Name    Name
	Version string // the release; of what is wanted perhaps with a leading "v"
	Arch    string // amd64 or arm64
	// URL is where upstream publishes the file. It may carry credentials: show Redact(URL).
	// runc.url or kubernetes.urlTemplate may replace it; the digest remains the release's.
	URL string
	// Archive tells a tar.gz, unpacked below <store>/<id>/; a binary becomes <store>/<id>/<name>.
	Archive bool
	// ID is the published file's digest in lower-case hex, and its directory's name in the store:
	// SHA-256 (64 digits), or SHA-512 (128) where nothing else is published.
	ID        string
	TarSHA256 string // an archive's digest uncompressed, or empty; with it a .tar.zst can be used
	Size      int64  // the length of the published file in bytes, 0 when unknown. No more is read.
	// Late artifacts are not needed for a node to be Ready and leave the bandwidth to the others.
	Late bool
}

// String gives the name and version, for messages.
func (a Artifact) String() string { return fmt.Sprintf("%s %s", a.Name, a.Version) }

func (p project) upstream(version, arch string) string {
	return strings.NewReplacer("{v}", version, "{arch}", arch).Replace(p.url)
}

// checksums names the checksum file beside the file at u, or "" where upstream publishes none.
func (p project) checksums(u url.URL) string {
	switch {
	case p.sums == "":
		return ""
	case p.sums[0] == '/':
		u.Path = path.Join(path.Dir(u.Path), p.sums)
	default:
		u.Path += p.sums
	}
	return u.String()
}

// check finds mistakes in what is wanted that would otherwise end up in a URL or a path.
func (a Artifact) check() error {
	_, isVersion := release.Parse(a.Version)
	switch {
	case a.Name.project().url == "":
		return fmt.Errorf("internal error: unknown artifact %q", a.Name)
	case !isVersion:
		return fmt.Errorf("cannot use version %q of %s: it is not of the form 1.2.3", a.Version,
			a.Name)
	case a.Arch != "amd64" && a.Arch != "arm64":
		return fmt.Errorf("cannot use architecture %q for %s: only amd64 and arm64 are supported",
			a.Arch, a.Name)
	}
	return nil
}

// maxBytes returns the length that the published file cannot exceed, or its zstd variant.
func (a Artifact) maxBytes(zst bool) int64 {
	if zst {
		return a.Name.project().max
	}
	return cmp.Or(a.Size, a.Name.project().max)
}

// zstURL names the zstd variant of the file at raw, or "" where there can be none.
func (a Artifact) zstURL(raw string) string {
	if !a.Archive {
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
