package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/regular"
	"github.com/Azure/AKSFlexNode/internal/release"
)

// Wanted returns the artifacts of a configuration, unresolved.
func Wanted(c config.Config, arch string) []Artifact {
	k8s := func(name Name) Artifact {
		url := c.Kubernetes.BinaryURL(string(name), arch)
		return Artifact{Name: name, Version: c.Kubernetes.Version, Arch: arch, URL: url}
	}
	return []Artifact{
		{Name: Containerd, Version: c.Containerd.Version, Arch: arch},
		k8s(Kubelet),
		{Name: Runc, Version: c.Runc.Version, Arch: arch, URL: c.Runc.BinaryURL(arch)},
		{Name: CNIPlugins, Version: c.CNI.Version, Arch: arch},
		k8s(Kubectl),
		k8s(Kubeadm),
		{Name: NPD, Version: c.NPD.Version, Arch: arch},
	}
}

// Resolve finds the digest of every wanted artifact: in overrides (keyed by name and version, or by
// name), in the pinned digests, or in the checksum file that upstream publishes, read over https
// from upstream (with Source.TrustMirrors from the mirrors first) or from Source.Directory. It
// keeps the order of wanted. The error reports every artifact that cannot be resolved.
func Resolve(
	ctx context.Context, s Source, wanted []Artifact, overrides map[string]config.Override,
) ([]Artifact, error) {
	arts, errs := make([]Artifact, len(wanted)), make([]error, len(wanted))
	var wg sync.WaitGroup
	for i, a := range wanted {
		wg.Go(func() { arts[i], errs[i] = resolve(ctx, s, a, overrides) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	seen := map[string]Artifact{}
	for _, a := range arts {
		if b, ok := seen[a.ID]; ok && b.Name != a.Name {
			return nil, fmt.Errorf("cannot use one digest for %s and %s: correct "+
				"artifacts.overrides", b, a)
		}
		seen[a.ID] = a
	}
	return arts, nil
}

func overrideOf(a Artifact, overrides map[string]config.Override) config.Override {
	name := string(a.Name)
	if o, ok := overrides[release.Key(name, release.Bare(a.Version))]; ok {
		return o
	}
	return overrides[name]
}

func resolve(
	ctx context.Context, s Source, a Artifact, overrides map[string]config.Override,
) (Artifact, error) {
	if err := a.check(); err != nil {
		return Artifact{}, err
	}
	project := projects[a.Name]
	a.URL, a.Archive, a.Late = Upstream(a, overrides), project.archive, project.late
	a.Version = strings.TrimPrefix(a.Version, "v")
	if o := overrideOf(a, overrides); o.SHA256 != "" {
		a.ID, a.TarSHA256, a.Size = o.SHA256, o.TarSHA256, o.Size
		return a, nil
	}
	if p := release.Pinning(string(a.Name), a.Version, a.Arch); p.Digest != "" {
		a.ID, a.Size = p.Digest, p.Size
		return a, nil
	}
	return a.published(ctx, s)
}

func (a Artifact) published(ctx context.Context, s Source) (Artifact, error) {
	u, err := parseURL("artifact URL", a.URL)
	if err != nil {
		return Artifact{}, err
	}
	sums := projects[a.Name].checksums(*u)
	if sums == "" {
		return Artifact{}, fmt.Errorf("cannot verify %s: upstream publishes no checksum for it; "+
			"use a version that is known here (%s) or set artifacts.overrides.%s.sha256",
			a, strings.Join(release.Pinned(string(a.Name)), ", "), a.Name)
	}
	if !s.TrustMirrors {
		s.Mirrors = nil // a mirror must not vouch for its own files
	}
	list, err := s.places(sums)
	if err != nil {
		return Artifact{}, err
	}
	read := func(ctx context.Context, c candidate) (bool, error) {
		text, err := s.checksumText(ctx, c)
		if err != nil {
			return false, err
		}
		if a.ID, err = parseChecksum(text, path.Base(u.Path)); err != nil {
			return false, &Error{Cause: Digest, Err: fmt.Errorf("cannot use this checksum file: %w", err)}
		}
		return false, nil
	}
	retrying := func(*Error, time.Duration) {
		if s.Progress != nil {
			s.Progress()
		}
	}
	if err := try(ctx, a, list, read, retrying); err != nil {
		return Artifact{}, fmt.Errorf("cannot learn the published checksum: %w", err)
	}
	return a, nil
}

const checksumTimeout = 30 * time.Second // bounds one attempt to read a checksum file

// checksumText reads a checksum file, never over plain http, which would prove nothing.
func (s Source) checksumText(ctx context.Context, c candidate) (string, error) {
	const limit = 64 << 10
	ctx, cancel := context.WithTimeout(ctx, checksumTimeout)
	defer cancel()
	if u, err := url.Parse(c.url); !c.file && (err != nil || u.Scheme != "https") {
		return "", &Error{Cause: Forbidden, what: "a checksum is accepted only over https"}
	}
	body, _, err := s.open(ctx, c)
	if err != nil {
		return "", err
	}
	defer body.Close()
	if c.file && s.Trusted != nil {
		if err := s.Trusted(c.url); err != nil {
			return "", &Error{Cause: Disk, what: err.Error()}
		}
	}
	text, err := io.ReadAll(io.LimitReader(body, limit))
	if err != nil {
		return "", netError(err)
	}
	return string(text), nil
}

// open opens the file at a place. The size is -1 if the server does not send it.
func (s Source) open(ctx context.Context, c candidate) (io.ReadCloser, int64, error) {
	if c.file {
		f, info, err := regular.Open(c.url)
		if err != nil {
			return nil, 0, fileError(err)
		}
		return f, info.Size(), nil
	}
	resp, err := s.get(ctx, c.url, 0)
	if err != nil {
		return nil, 0, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, 0, statusError(resp.StatusCode)
	}
	return resp.Body, resp.ContentLength, nil
}

// get sends one request for a file from an offset on. An answer in HTML is not from a file server.
func (s Source) get(ctx context.Context, raw string, offset int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, raw, nil)
	if err != nil {
		return nil, &Error{Cause: Status, Err: errors.New("cannot parse this URL")}
	}
	if offset > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	req.Header.Set("User-Agent", "aks-flex-node")
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := s.HTTP.Do(req)
	if err != nil {
		if cause, ok := context.Cause(ctx).(*Error); ok {
			return nil, cause
		}
		return nil, netError(err)
	}
	if resp.StatusCode < 300 && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
		resp.Body.Close()
		return nil, captivePortal()
	}
	return resp, nil
}

func captivePortal() *Error {
	return &Error{Cause: CaptivePortal, what: "received a web page instead of the file"}
}

// parseChecksum reads the digest of file from a checksum file: a bare SHA-256, or the lines of
// sha256sum(1), exactly one of which names the file.
func parseChecksum(text, file string) (string, error) {
	text = strings.TrimSpace(text)
	if isSHA256(text) {
		return strings.ToLower(text), nil
	}
	found := ""
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			continue
		}
		sum, name, ok := strings.Cut(line, " ")
		switch {
		case !ok || !isSHA256(sum) || len(name) < 2 || (name[0] != ' ' && name[0] != '*'):
			return "", fmt.Errorf("it is not a list of SHA-256 checksums: %.80q", line)
		case strings.TrimPrefix(name[1:], "./") != file:
		case found != "":
			return "", fmt.Errorf("it names %s twice", file)
		default:
			found = strings.ToLower(sum)
		}
	}
	if found == "" {
		return "", fmt.Errorf("it does not name %s", file)
	}
	return found, nil
}

func isSHA256(s string) bool { return len(s) == 64 && isDigest(strings.ToLower(s)) }
