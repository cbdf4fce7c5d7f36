package apt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Signer is a key of GnuPG.
type Signer struct {
	// Home is the directory of GnuPG, "" for the user's own; Key names the key, "" the only one.
	Home, Key string
}

// MakeKey makes a key without a passphrase in a directory of its own, with which a trial archive
// is signed.
func MakeKey(ctx context.Context, home, name string) (Signer, error) {
	s := Signer{Home: home}
	err := os.MkdirAll(home, 0o700)
	if err == nil {
		_, err = s.gpg(ctx, "--pinentry-mode", "loopback", "--passphrase", "",
			"--quick-gen-key", name, "ed25519", "sign", "never")
	}
	if err != nil {
		return s, fmt.Errorf("cannot make a key: %w", err)
	}
	return s, nil
}

// Public is the public key, as apt reads it from a file in Signed-By: FILE.asc if it is armored.
func (s Signer) Public(ctx context.Context, armored bool) ([]byte, error) {
	args := []string{"--export-options", "export-minimal", "--export"}
	if armored {
		args = append([]string{"--armor"}, args...)
	}
	if s.Key != "" {
		args = append(args, s.Key)
	}
	key, err := s.gpg(ctx, args...)
	if err == nil && len(key) == 0 {
		err = errors.New("there is none")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot export the public key: %w", err)
	}
	return key, nil
}

// Sign signs the index of a suite: InRelease for today's clients, Release.gpg for others.
func (s Signer) Sign(ctx context.Context, dir, suite string) error {
	release := filepath.Join(dir, "dists", suite, "Release")
	var user []string
	if s.Key != "" {
		user = []string{"--local-user", s.Key}
	}
	for name, how := range map[string][]string{
		"InRelease": {"--clearsign"}, "Release.gpg": {"--armor", "--detach-sign"},
	} {
		signed, err := s.gpg(ctx, append(append(user, how...), "--output", "-", release)...)
		if err == nil {
			err = put(filepath.Join(filepath.Dir(release), name), signed)
		}
		if err != nil {
			return fmt.Errorf("cannot sign the repository: %w", err)
		}
	}
	return nil
}

// Close ends the agent that GnuPG has started for a directory of its own.
func (s Signer) Close(ctx context.Context) error {
	if s.Home == "" {
		return nil
	}
	return exec.CommandContext(ctx, "gpgconf", "--homedir", s.Home, "--kill", "all").Run()
}

func (s Signer) gpg(ctx context.Context, args ...string) ([]byte, error) {
	all := []string{"--batch", "--quiet", "--yes"}
	if s.Home != "" {
		all = append(all, "--homedir", s.Home)
	}
	cmd := exec.CommandContext(ctx, "gpg", append(all, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("gpg: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, err
}
