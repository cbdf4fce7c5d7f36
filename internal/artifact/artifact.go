// Package artifact fetches the binaries of a node: it knows where each is published and its digest,
// downloads it from mirrors or upstream, verifies it as it arrives, and unpacks it into a
// content-addressed store. It installs nothing: other packages link store entries into the host.
// The agent's verbs call Resolve, then Fetcher.Start, and Collect at the end.
package artifact

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/release"
)

// Name names one artifact; it is also its key in artifacts.overrides.
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

// project describes how the project behind an artifact publishes it.
type project struct {
	// url is upstream's URL of the file: {v} is the version without "v", {arch} the architecture.
	url string
	// sums is the suffix of the checksum file after url; or, with a leading slash, the name of the one
	// for all architectures. It is "" if upstream has none.
	sums          string
	archive, late bool
	max           int64 // max length in bytes of any of its files
}

const (
	k8s    = "https://dl.k8s.io/v{v}/bin/linux/{arch}/"
	github = "https://github.com/"
	mib    = 1 << 20 // the largest releases have at most about half of the lengths below
)

var projects = map[Name]project{
	Containerd: {github + "containerd/containerd/releases/download/v{v}/" +
		"containerd-{v}-linux-{arch}.tar.gz", ".sha256sum", true, false, 128 * mib},
	Kubelet: {k8s + "kubelet", ".sha256", false, false, 256 * mib},
	Runc: {github + "opencontainers/runc/releases/download/v{v}/runc.{arch}", "/runc.sha256sum",
		false, false, 64 * mib},
	CNIPlugins: {github + "containernetworking/plugins/releases/download/v{v}/" +
		"cni-plugins-linux-{arch}-v{v}.tgz", ".sha256", true, false, 128 * mib},
	Kubectl: {k8s + "kubectl", ".sha256", false, true, 256 * mib},
	Kubeadm: {k8s + "kubeadm", ".sha256", false, true, 256 * mib},
	NPD: {github + "kubernetes/node-problem-detector/releases/download/v{v}/" +
		"node-problem-detector-v{v}-linux_{arch}.tar.gz", "", true, true, 256 * mib},
}

// Artifact is one published file; once resolved, with everything needed to fetch and verify it. A
// wanted one has only Name, Version, Arch and perhaps URL.
type Artifact struct {
	Name    Name
	Version string // the release; in a wanted one perhaps with a leading "v"
	Arch    string // amd64 or arm64
	// URL is the upstream URL of the file. It may hold credentials: show Redact(URL). runc.url or
	// kubernetes.urlTemplate may replace it; the digest remains the release's.
	URL string
	// Archive marks a tar.gz, unpacked below <store>/<id>/; a binary becomes <store>/<id>/<name>.
	Archive bool
	// ID is the published file's digest in lower-case hex, and the name of its directory in the store:
	// SHA-256 (64 digits), or SHA-512 (128) if only that is published.
	ID        string
	TarSHA256 string // an archive's digest uncompressed, or empty; with it a .tar.zst can be used
	Size      int64  // the length of the published file in bytes and max read; 0 if unknown
	// Late artifacts are not needed for a node to be Ready and leave bandwidth to the others.
	Late bool
}

// String returns name and version, for messages.
func (a Artifact) String() string { return fmt.Sprintf("%s %s", a.Name, a.Version) }

func (p project) upstream(version, arch string) string {
	return strings.NewReplacer("{v}", version, "{arch}", arch).Replace(p.url)
}

// checksums returns the URL of the checksum file for the file at u; "" if upstream has none.
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

// check finds mistakes in a wanted artifact that would otherwise end up in a URL or a path.
func (a Artifact) check() error {
	_, isVersion := release.Parse(a.Version)
	switch {
	case projects[a.Name].url == "":
		return fmt.Errorf("internal error: unknown artifact %q", a.Name)
	case !isVersion:
		return fmt.Errorf("cannot use version %q of %s: it is not of the form 1.2.3", a.Version, a.Name)
	case a.Arch != "amd64" && a.Arch != "arm64":
		return fmt.Errorf("cannot use architecture %q for %s: only amd64 and arm64 are supported",
			a.Arch, a.Name)
	}
	return nil
}

// maxBytes returns the max length of the published file, or of its zstd variant.
func (a Artifact) maxBytes(zst bool) int64 {
	if zst {
		return projects[a.Name].max
	}
	return cmp.Or(a.Size, projects[a.Name].max)
}

// zstURL returns the URL of the zstd variant of the file at raw; "" if there can be none.
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

// Redact returns a URL without its possibly secret parts: user, password, query and fragment.
func Redact(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "[unreadable URL]"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
