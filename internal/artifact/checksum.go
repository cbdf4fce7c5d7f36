package artifact

import (
	"fmt"
	"net/url"
	"path"
	"strings"
)

// checksumURL names the checksum file that upstream publishes beside the file at raw, or "" where
// it publishes none. The conventions are those of dl.k8s.io (<binary>.sha256) and of the release
// pages of containerd (<tarball>.sha256sum), runc (runc.sha256sum for all architectures) and the
// CNI plugins (<tarball>.sha256).
func checksumURL(n Name, raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	switch n {
	case Kubelet, Kubectl, Kubeadm, CNIPlugins:
		u.Path += ".sha256"
	case Containerd:
		u.Path += ".sha256sum"
	case Runc:
		u.Path = path.Join(path.Dir(u.Path), "runc.sha256sum")
	default:
		return ""
	}
	return u.String()
}

// parseChecksum reads the digest of file from a published checksum file: either one bare SHA-256,
// or the lines of sha256sum(1), of which exactly one names the file. Anything else in it makes the
// whole file untrusted.
func parseChecksum(text, file string) (string, error) {
	text = strings.TrimSpace(text)
	if isSHA256(text) {
		return strings.ToLower(text), nil
	}
	found := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			continue
		}
		sum, name, ok := strings.Cut(line, " ")
		if !ok || !isSHA256(sum) || len(name) < 2 || (name[0] != ' ' && name[0] != '*') {
			return "", fmt.Errorf("it is not a list of SHA-256 checksums: %.80q", line)
		}
		if strings.TrimPrefix(name[1:], "./") != file {
			continue
		}
		if found != "" {
			return "", fmt.Errorf("it names %s twice", file)
		}
		found = strings.ToLower(sum)
	}
	if found == "" {
		return "", fmt.Errorf("it does not name %s", file)
	}
	return found, nil
}

func isSHA256(s string) bool { return len(s) == 64 && isDigest(strings.ToLower(s)) }
