package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/packaging/apt"
	"github.com/Azure/AKSFlexNode/packaging/deb"
	"github.com/Azure/AKSFlexNode/packaging/notice"
	"github.com/Azure/AKSFlexNode/scripts"
)

// archiveDir is where the lab serves the packages of the agent under test.
const archiveDir = "flexnode"

// ArchiveURL is the repository of the agent's packages, with install.sh and uninstall.sh.
const ArchiveURL = MirrorURL + "/" + archiveDir

// PublishAgent makes packages of the agent in several versions, the last of which is the newest,
// and publishes them as a release is: signed, with the scripts. All of them have the same program.
func (l *Lab) PublishAgent(ctx context.Context, agent string, versions ...string) error {
	dir := filepath.Join(l.packagesDir(), archiveDir)
	work, err := os.MkdirTemp(l.Dir, "packages-")
	if err != nil {
		return fmt.Errorf("cannot publish the agent: %w", err)
	}
	defer os.RemoveAll(work)
	programs := filepath.Join(work, "programs", runtime.GOARCH)
	err = withKey(ctx, func(s apt.Signer) error {
		key, err := s.Public(ctx, false)
		if err == nil {
			err = errors.Join(os.MkdirAll(programs, 0o755),
				os.Symlink(agent, filepath.Join(programs, "aks-flex-node")))
		}
		var files []string
		for _, version := range versions {
			if err != nil {
				return err
			}
			var made []string
			made, err = packages(ctx, work, deb.Release{Version: version, Time: time.Now(),
				Maintainer: "flexlab <flexlab@flexlab.example>", Programs: filepath.Dir(programs),
				Native: runtime.GOARCH, Key: key, Fast: true})
			files = append(files, made...)
		}
		if err != nil {
			return err
		}
		terms, err := notice.Of(ctx, agent)
		if err != nil {
			return err
		}
		newest := versions[len(versions)-1]
		return errors.Join(publish(ctx, s, dir, "stable", files...),
			scripts.Release{Version: newest, URL: ArchiveURL, Key: key,
				Programs: map[string]string{runtime.GOARCH: agent},
				Notices:  map[string][]byte{runtime.GOARCH: terms}}.Write(dir))
	})
	if err != nil {
		return fmt.Errorf("cannot publish the agent: %w", err)
	}
	return nil
}

// packages makes the packages of one version.
func packages(ctx context.Context, dir string, r deb.Release) ([]string, error) {
	agent, err := r.Agent(ctx, runtime.GOARCH)
	keyring, problem := r.Keyring()
	if err := errors.Join(err, problem); err != nil {
		return nil, err
	}
	var files []string
	for p := range slices.Values([]deb.Package{agent, keyring}) {
		file, err := p.Write(ctx, dir)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}
