package apt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// TrialName is part of the name of a key made for a trial, with which nothing is published.
const TrialName = "AKS Flex Node trial archive"

// Signer signs with GnuPG keys.
type Signer struct {
	// Home is GnuPG's directory; "" is the user's own.
	Home string
	// Keys name the keys that machines trust; the first one signs. If empty, it is the only key in
	// Home.
	Keys []string
}

// MakeKey generates a key without a passphrase in a directory of its own.
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

// Public returns the public keys as apt reads them from a Signed-By file, which must be named
// FILE.asc if they are armored.
func (s Signer) Public(ctx context.Context, armored bool) ([]byte, error) {
	args := []string{"--export-options", "export-minimal", "--export"}
	if armored {
		args = append([]string{"--armor"}, args...)
	}
	keys, err := s.gpg(ctx, append(args, s.Keys...)...)
	_, missing := s.list(ctx)
	if err = errors.Join(err, missing); err != nil {
		return nil, fmt.Errorf("cannot export the public keys: %w", err)
	}
	return keys, nil
}

// list returns gpg's list of the keys. It fails if one is missing, which an export ignores.
func (s Signer) list(ctx context.Context) (string, error) {
	listed, err := s.gpg(ctx, append([]string{"--with-colons", "--list-keys"}, s.Keys...)...)
	for _, key := range s.Keys {
		_, missing := s.gpg(ctx, "--list-keys", key) // with several keys, gpg ignores missing ones
		err = errors.Join(err, missing)
	}
	if err == nil && len(listed) == 0 {
		err = fmt.Errorf("there are no keys in %s", s.Home)
	}
	return string(listed), err
}

// ForTrial reports whether a key was made for a trial.
func (s Signer) ForTrial(ctx context.Context) (bool, error) {
	listed, err := s.list(ctx)
	return strings.Contains(listed, ":"+TrialName+":"), err
}

// Sign signs the index of a suite, as InRelease.
func (s Signer) Sign(ctx context.Context, dir, suite string) error {
	release := filepath.Join(dir, "dists", suite, "Release")
	args := []string{"--clearsign", "--output", "-", release}
	if len(s.Keys) > 0 {
		args = append([]string{"--local-user", s.Keys[0]}, args...)
	}
	signed, err := s.gpg(ctx, args...)
	if err == nil {
		err = put(filepath.Join(filepath.Dir(release), "InRelease"), signed)
	}
	if err != nil {
		return fmt.Errorf("cannot sign the repository: %w", err)
	}
	return nil
}

// Close stops the gpg-agent of Home, if that is not the user's own.
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
