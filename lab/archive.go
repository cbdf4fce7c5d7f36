package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"
)

// source returns the project's source directory; flexlab is in its bin directory.
func (l *Lab) source() string { return filepath.Dir(filepath.Dir(l.Self)) }

// packaged returns a file of packaging, such as a unit. packaging is a separate module, so its
// files cannot be embedded.
func (l *Lab) packaged(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(l.source(), "packaging", name))
	if err != nil {
		return "", fmt.Errorf("cannot read a file of packaging: %w", err)
	}
	return string(text), nil
}

// release runs packaging/release, which makes packages, repositories and images.
func (l *Lab) release(ctx context.Context, args ...string) error {
	argv := []string{"run", "-C", filepath.Join(l.source(), "packaging"), "./release"}
	_, err := run(ctx, "go", append(argv, args...)...)
	return err
}

// withKey calls do with the GnuPG home of a new key, which is deleted afterwards.
func (l *Lab) withKey(ctx context.Context, do func(home string) error) error {
	dir, err := os.MkdirTemp("", "flexlab-gpg-") // short: it holds the agent's socket
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	home := filepath.Join(dir, "k")
	err = l.release(ctx, "key", "--home", home, "--name", "flexlab <flexlab@flexlab.example>")
	if err != nil {
		return err
	}
	return do(home)
}

// programsDir fills a directory with a program by architecture, as in a release, and returns it.
func programsDir(dir, program string) (string, error) {
	path := filepath.Join(dir, runtime.GOARCH, filepath.Base(program))
	return dir, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(program, path))
}

// archiveDir is the directory of the repository with the agent under test.
const archiveDir = "flexnode"

// latestRelease is the path on ReleaseHost from which the sources' install.sh fetches that of the
// latest release.
const (
	latestRelease = "/Azure/AKSFlexNode/releases/latest/download/"
	ReleaseHost   = "github.com"
)

// ArchiveURL is the repository with the agent's packages, install.sh and uninstall.sh.
const ArchiveURL = MirrorURL + "/" + archiveDir

// PublishAgent makes packages of the agent in several versions, oldest first, and publishes them as
// a release: signed and with the scripts. All versions have the same program.
func (l *Lab) PublishAgent(ctx context.Context, agent string, versions ...string) error {
	dir := filepath.Join(l.packagesDir(), archiveDir)
	work, err := os.MkdirTemp(l.Dir, "packages-")
	if err != nil {
		return fmt.Errorf("cannot publish the agent: %w", err)
	}
	defer os.RemoveAll(work)
	programs, err := programsDir(filepath.Join(work, "programs"), agent)
	if err == nil {
		err = os.RemoveAll(dir) // no version is published twice with other contents
	}
	if err == nil {
		err = l.withKey(ctx, func(home string) error {
			return l.publishVersions(ctx, home, programs, dir, versions)
		})
	}
	if err != nil {
		return fmt.Errorf("cannot publish the agent: %w", err)
	}
	return nil
}

// publishVersions publishes the versions in order, as releases follow each other.
func (l *Lab) publishVersions(
	ctx context.Context, home, programs, dir string, versions []string,
) error {
	packages := filepath.Join(filepath.Dir(programs), "made")
	for _, version := range versions {
		about := []string{"--home", home, "--architectures", runtime.GOARCH, "--programs", programs,
			"--version", version, "--packages", packages}
		if err := l.release(ctx, append([]string{"packages", "--fast", "--program", "aks-flex-node",
			"--maintainer", "flexlab <flexlab@flexlab.example>",
			"--time", strconv.FormatInt(time.Now().Unix(), 10)}, about...)...); err != nil {
			return err
		}
		if err := l.release(ctx, append([]string{"repository", "--repository", dir,
			"--url", ArchiveURL}, about...)...); err != nil {
			return err
		}
	}
	return nil
}
