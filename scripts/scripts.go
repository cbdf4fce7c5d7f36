// Package scripts holds the scripts that install and remove the agent, and publishes them with the
// files they install.
package scripts

import (
	"crypto/sha256"
	_ "embed" // the scripts
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

var (
	//go:embed install.sh
	install string
	//go:embed uninstall.sh
	uninstall string
)

// Release describes the release that install.sh installs.
type Release struct {
	// Version is the packages' version; URL is where the written directory is published.
	Version, URL string
	// Key holds the repository's public keys, not armored.
	Key []byte
	// Unit is the agent's unit.
	Unit string
	// Programs are the paths of the agent by architecture.
	Programs map[string]string
	// Notices are the licences of the code linked into them, by architecture.
	Notices map[string][]byte
}

// keyring is the file with the keys, for users who add the repository by hand.
const keyring = "aks-flex-node-archive-keyring.gpg"

// Write writes the scripts to the repository's directory, with the files that install.sh fetches if
// there is no apt. install.sh pins their digests and the repository's keys.
func (r Release) Write(dir string) error {
	values := map[string]string{"VERSION": r.Version, "REPOSITORY": r.URL,
		"KEY": base64.StdEncoding.EncodeToString(r.Key)}
	base := "programs/aks-flex-node_" + r.Version
	files := map[string][]byte{"uninstall.sh": []byte(uninstall), keyring: r.Key,
		base + ".service": []byte(r.Unit), base + ".uninstall.sh": []byte(uninstall)}
	for arch, file := range r.Programs {
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("cannot publish the agent: %w", err)
		}
		terms := r.Notices[arch]
		if len(terms) == 0 {
			return fmt.Errorf("cannot publish the agent: no licences of the program for %s", arch)
		}
		name := base + "_" + arch
		files[name], files[name+".NOTICE"] = data, terms
		values["PROGRAM_"+strings.ToUpper(arch)] = digest(data)
		values["NOTICE_"+strings.ToUpper(arch)] = digest(terms)
	}
	values["UNIT"] = digest([]byte(r.Unit))
	values["UNINSTALL"] = digest([]byte(uninstall))
	text, err := filled(install, values)
	if err != nil {
		return err
	}
	files["install.sh"] = []byte(text)
	defer syscall.Umask(syscall.Umask(0o022))
	for name, data := range files {
		path := filepath.Join(dir, name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644))
	}
	return err
}

func digest(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// filled returns a script with its empty variables set.
func filled(script string, values map[string]string) (string, error) {
	for name, value := range values {
		empty := "\n" + name + "=''\n"
		if strings.Count(script, empty) != 1 || strings.ContainsAny(value, "'\n") {
			return "", fmt.Errorf("cannot fill %s in install.sh with %q", name, value)
		}
		script = strings.Replace(script, empty, "\n"+name+"='"+value+"'\n", 1)
	}
	return script, nil
}
