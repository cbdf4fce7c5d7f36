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

// TrialName is in the name of a key that was made for a trial, with which nothing is published.
const TrialName = "AKS Flex Node trial archive"

// Signer is a list of GnuPG's keys.
type Signer struct {
	// Home is the directory of GnuPG, "" for the user's own.
	Home string
	// Keys names the keys that machines trust, of which the first signs; without any it is the only
	// key there is.
	Keys []string
}

// MakeKey makes a key without a passphrase in a directory of its own.
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

// Public returns the public keys, as apt reads them from a file in Signed-By: FILE.asc if they are
// armored.
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

// list returns what gpg says of the keys. It fails if one is missing, of which an export says
// nothing.
func (s Signer) list(ctx context.Context) (string, error) {
	listed, err := s.gpg(ctx, append([]string{"--with-colons", "--list-keys"}, s.Keys...)...)
	for _, key := range s.Keys {
		_, missing := s.gpg(ctx, "--list-keys", key) // of several gpg finds those that there are
		err = errors.Join(err, missing)
	}
	if err == nil && len(listed) == 0 {
		err = fmt.Errorf("there are no keys in %s", s.Home)
	}
	return string(listed), err
}

// ForTrial reports whether one of the keys was made for a trial.
func (s Signer) ForTrial(ctx context.Context) (bool, error) {
	listed, err := s.list(ctx)
	return strings.Contains(listed, ":"+TrialName+":"), err
}

// Sign signs the index of a suite: InRelease for today's clients, Release.gpg for others.
func (s Signer) Sign(ctx context.Context, dir, suite string) error {
	release := filepath.Join(dir, "dists", suite, "Release")
	var user []string
	if len(s.Keys) > 0 {
		user = []string{"--local-user", s.Keys[0]}
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
