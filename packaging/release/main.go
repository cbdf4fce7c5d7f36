// Command release makes what is published of a release from its programs: packages, and the
// repository that has them. `make packages` and `make apt-repository` call it.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/packaging/apt"
	"github.com/Azure/AKSFlexNode/packaging/deb"
	"github.com/Azure/AKSFlexNode/packaging/notice"
	"github.com/Azure/AKSFlexNode/scripts"
)

// validity is for how long machines take an index: whoever publishes makes a new one before.
const validity = 30 * 24 * time.Hour

// options are the flags.
type options struct {
	version, commit, maintainer string
	time                        int64
	programs, architectures     string
	packages, repository, url   string
	home, key                   string
}

func main() {
	var o options
	flag.StringVar(&o.version, "version", "dev", "the version, as `git describe` gives it")
	flag.StringVar(&o.commit, "commit", "unknown", "what the programs were built from")
	flag.Int64Var(&o.time, "time", 0, "its time, in `seconds` of Unix time")
	flag.StringVar(&o.maintainer, "maintainer",
		"AKS Flex Node authors <aksflexnode@users.noreply.github.com>", "who answers for the packages")
	flag.StringVar(&o.programs, "programs", "bin/packages/programs",
		"directory with ARCHITECTURE/PROGRAM")
	flag.StringVar(&o.architectures, "architectures", "amd64,arm64",
		"those to make packages for")
	flag.StringVar(&o.packages, "packages", "bin/packages", "`directory` of the packages")
	flag.StringVar(&o.repository, "repository", "",
		"make this `directory` the repository of the packages, instead of packages")
	flag.StringVar(&o.url, "url", "", "where the repository will be published, for install.sh")
	flag.StringVar(&o.home, "home", "",
		"GnuPG's `directory` with the key that signs; made with a key for trials if it is not there")
	flag.StringVar(&o.key, "key", "", "the key, where there are more")
	flag.Parse()
	if err := o.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func (o options) run(ctx context.Context) (err error) {
	signer := apt.Signer{Home: o.home, Key: o.key}
	if _, missing := os.Stat(o.home); o.home != "" && errors.Is(missing, os.ErrNotExist) {
		if signer, err = apt.MakeKey(ctx, o.home, "AKS Flex Node trial archive"); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, signer.Close(ctx)) }()
	if o.repository != "" {
		return o.makeRepository(ctx, signer)
	}
	return o.makePackages(ctx, signer)
}

func (o options) makePackages(ctx context.Context, signer apt.Signer) error {
	key, err := signer.Public(ctx, false)
	if err != nil {
		return err
	}
	built := time.Unix(o.time, 0)
	r := deb.Release{Version: deb.Version(o.version, built), Commit: o.commit, Time: built,
		Maintainer: o.maintainer, Programs: o.programs, Native: runtime.GOARCH, Key: key}
	files, err := r.Write(ctx, o.packages, strings.Split(o.architectures, ",")...)
	if err != nil {
		return err
	}
	sources := map[string]string{}
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("cannot state what went into the packages: %w", err)
		}
		sources[name] = fmt.Sprintf("%x", sha256.Sum256(text))
	}
	statement, err := deb.Provenance(r, files, sources)
	if err != nil {
		return err
	}
	for _, file := range files {
		fmt.Println(file)
	}
	return os.WriteFile(filepath.Join(o.packages, "provenance.json"), statement, 0o644)
}

func (o options) makeRepository(ctx context.Context, signer apt.Signer) error {
	packages, err := filepath.Glob(filepath.Join(o.packages, "*.deb"))
	if err != nil || len(packages) == 0 {
		return errors.Join(err, fmt.Errorf("cannot find packages in %s: run `make packages`", o.packages))
	}
	now := time.Now()
	r := apt.Repository{Origin: "AKS Flex Node", Label: "AKS Flex Node", Suite: "stable",
		Codename: "stable", Architectures: strings.Split(o.architectures, ","), Date: now,
		ValidUntil: now.Add(validity)}
	if err := r.Write(ctx, o.repository, packages); err != nil {
		return err
	}
	if err := signer.Sign(ctx, o.repository, r.Suite); err != nil {
		return err
	}
	fmt.Println(o.repository)
	if o.url == "" {
		return nil
	}
	key, err := signer.Public(ctx, false)
	if err != nil {
		return err
	}
	programs, notices := map[string]string{}, map[string][]byte{}
	for _, arch := range r.Architectures {
		programs[arch] = filepath.Join(o.programs, arch, "aks-flex-node")
		if notices[arch], err = notice.Of(ctx, programs[arch]); err != nil {
			return err
		}
	}
	return scripts.Release{Version: deb.Version(o.version, time.Unix(o.time, 0)), URL: o.url, Key: key,
		Programs: programs, Notices: notices}.Write(o.repository)
}
