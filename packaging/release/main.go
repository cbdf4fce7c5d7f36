// Command release makes the published files of a release from its programs: packages, their
// repository, and the provider's image. `make packages` and similar targets run it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/packaging"
	"github.com/Azure/AKSFlexNode/packaging/apt"
	"github.com/Azure/AKSFlexNode/packaging/deb"
	"github.com/Azure/AKSFlexNode/packaging/image"
	"github.com/Azure/AKSFlexNode/packaging/notice"
	"github.com/Azure/AKSFlexNode/scripts"
)

// validity is the time for which machines accept an index; the publisher must renew it before.
const validity = 30 * 24 * time.Hour

// options are the flags.
type options struct {
	version, commit, maintainer      string
	time                             int64
	programs, packages, home         string
	architectures, program, keys     []string
	repository, suite, url           string
	keep                             int
	fast                             bool
	imageName, imageOut, keyRealName string
}

func main() {
	if newRoot(&options{}).Execute() != nil { // cobra prints the error
		os.Exit(1)
	}
}

func newRoot(o *options) *cobra.Command {
	root := &cobra.Command{Use: "release", SilenceUsage: true}
	all := root.PersistentFlags()
	all.StringVar(&o.version, "version", "dev", "the version, as `git describe` gives it")
	all.StringVar(&o.commit, "commit", "unknown", "what the programs were built from")
	all.Int64Var(&o.time, "time", 0, "its time, in `seconds` of Unix time")
	all.StringSliceVar(&o.architectures, "architectures", []string{"amd64", "arm64"},
		"of the machines")
	all.StringVar(&o.programs, "programs", "", "`directory` with ARCHITECTURE/PROGRAM")
	all.StringVar(&o.packages, "packages", "", "`directory` of the packages")
	all.StringVar(&o.home, "home", "", "GnuPG's `directory` with the keys")
	all.StringSliceVar(&o.keys, "keys", nil,
		"fingerprints of the keys that machines trust; the first signs")
	all.BoolVar(&o.fast, "fast", false, "compress little, for a trial")

	packages := &cobra.Command{Use: "packages", Short: "Make packages", Args: cobra.NoArgs,
		RunE: o.signed(o.makePackages)}
	packages.Flags().StringVar(&o.maintainer, "maintainer",
		"AKS Flex Node authors <aksflexnode@users.noreply.github.com>", "who answers for the packages")
	packages.Flags().StringSliceVar(&o.program, "program", []string{deb.Agent, deb.Provider},
		"those to make packages of")

	repository := &cobra.Command{Use: "repository", Short: "Add packages to a signed repository",
		Args: cobra.NoArgs, RunE: o.signed(o.makeRepository)}
	repository.Flags().StringVar(&o.repository, "repository", "", "its `directory`")
	repository.Flags().StringVar(&o.suite, "suite", "stable", "its suite")
	repository.Flags().IntVar(&o.keep, "keep", 10,
		"the versions of a package that it keeps, 0 for all")
	repository.Flags().StringVar(&o.url, "url", "", "where it will be published, for install.sh")

	picture := &cobra.Command{Use: "image", Short: "Make the image of flexnode-rp", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.makeImage(cmd.Context()) }}
	picture.Flags().StringVar(&o.imageName, "name", deb.Provider,
		"its `name`, perhaps with a registry")
	picture.Flags().StringVar(&o.imageOut, "out", "", "`file` to write; a directory without .tar")

	key := &cobra.Command{Use: "key", Short: "Make a key without a passphrase", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			signer, err := apt.MakeKey(cmd.Context(), o.home, o.keyRealName)
			return errors.Join(err, signer.Close(cmd.Context()))
		}}
	key.Flags().StringVar(&o.keyRealName, "name", "", "whose it is")
	root.AddCommand(packages, repository, picture, key)
	return root
}

// signed passes the keys to a command. If the directory does not exist, it generates a key for
// trials.
func (o *options) signed(do func(context.Context, apt.Signer) error) func(*cobra.Command,
	[]string) error {
	return func(cmd *cobra.Command, _ []string) (err error) {
		ctx, signer := cmd.Context(), apt.Signer{Home: o.home, Keys: o.keys}
		if _, missing := os.Stat(o.home); o.home != "" && errors.Is(missing, os.ErrNotExist) {
			if _, err := apt.MakeKey(ctx, o.home, apt.TrialName); err != nil {
				return err
			}
		}
		defer func() { err = errors.Join(err, signer.Close(ctx)) }()
		return do(ctx, signer)
	}
}

// built returns the time of the programs.
func (o *options) built() time.Time { return time.Unix(o.time, 0) }

func (o *options) makePackages(ctx context.Context, signer apt.Signer) error {
	key, err := signer.Public(ctx, false)
	if err != nil {
		return err
	}
	r := deb.Release{Version: deb.Version(o.version, o.built()), Commit: o.commit, Time: o.built(),
		Maintainer: o.maintainer, Programs: o.programs, Native: runtime.GOARCH, Key: key, Fast: o.fast}
	files, err := r.Write(ctx, o.packages, o.program, o.architectures)
	if err != nil {
		return err
	}
	statement, err := deb.Provenance(r, files, "..", "go.mod", "go.sum", "packaging/go.mod",
		"packaging/go.sum")
	if err != nil {
		return err
	}
	for _, file := range files {
		fmt.Println(file)
	}
	return os.WriteFile(filepath.Join(o.packages, "provenance.json"), statement, 0o644)
}

func (o *options) makeRepository(ctx context.Context, signer apt.Signer) error {
	if trial, err := signer.ForTrial(ctx); err != nil || trial && o.url != "" {
		return errors.Join(err, errors.New("cannot publish with a key that was made for trials, which "+
			"no one could renew: name the archive's with ARCHIVE_HOME and ARCHIVE_KEYS"))
	}
	packages, err := filepath.Glob(filepath.Join(o.packages, "*.deb"))
	if err != nil || len(packages) == 0 {
		return errors.Join(err, fmt.Errorf("cannot find packages in %s: run `make packages`", o.packages))
	}
	now := time.Now()
	r := apt.Repository{Origin: "AKS Flex Node", Label: "AKS Flex Node", Suite: o.suite,
		Architectures: o.architectures, Date: now, ValidUntil: now.Add(validity), Keep: o.keep}
	if err := r.Write(o.repository, packages...); err != nil {
		return err
	}
	if err := signer.Sign(ctx, o.repository, r.Suite); err != nil {
		return err
	}
	armored, err := signer.Public(ctx, true)
	if err == nil {
		err = os.WriteFile(filepath.Join(o.repository, "key.asc"), armored, 0o644)
	}
	if err != nil || o.url == "" {
		return err
	}
	return o.makeScripts(ctx, signer)
}

// makeScripts writes the files with which machines install without the repository.
func (o *options) makeScripts(ctx context.Context, signer apt.Signer) error {
	key, err := signer.Public(ctx, false)
	if err != nil {
		return err
	}
	unit, err := packaging.Files.ReadFile("systemd/" + packaging.AgentUnit)
	if err != nil {
		return err
	}
	programs, notices := map[string]string{}, map[string][]byte{}
	for _, arch := range o.architectures {
		programs[arch] = filepath.Join(o.programs, arch, deb.Agent)
		if notices[arch], err = notice.Of(ctx, programs[arch]); err != nil {
			return err
		}
	}
	return scripts.Release{Version: deb.Version(o.version, o.built()), URL: o.url, Key: key,
		Unit: string(unit), Programs: programs, Notices: notices}.Write(o.repository)
}

func (o *options) makeImage(ctx context.Context) error {
	a := image.About{Name: o.imageName, Version: o.version, Commit: o.commit, Created: o.built(),
		Architectures: o.architectures, Fast: o.fast}
	digest, err := a.Write(ctx, o.programs, o.imageOut)
	if err == nil {
		fmt.Println(o.imageOut, digest)
	}
	return err
}
