package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/regular"
)

// Key names an identity together with its secret: the SHA-256, in hex, of the azure section with
// its secrets in clear, and of the contents of the files and credentials that it names. Another
// secret, also one that was put into the same file, has another key. A bootstrap token has no part
// in it: it is no identity of Azure, and is forgotten after the join; nor has a service principal
// that enrols an Arc machine.
func Key(azure config.Azure) (string, error) {
	azure.BootstrapToken = nil
	if azure.AuthMode() == config.AuthArc {
		azure.ServicePrincipal = nil // it has enrolled the machine, whose identity is another one
	}
	section, err := config.Config{Azure: azure}.Reveal()
	if err != nil {
		return "", err
	}
	var document struct {
		Azure json.RawMessage `json:"azure"`
	}
	if err := json.Unmarshal(section, &document); err != nil {
		return "", fmt.Errorf("internal error: %w", err)
	}
	whole := sha256.New()
	add := func(part []byte) {
		digest := sha256.Sum256(part)
		whole.Write(digest[:])
	}
	add(document.Azure)
	if sp := azure.ServicePrincipal; sp != nil && sp.ClientSecretFile != "" {
		text, err := secret(*sp)
		if err != nil {
			return "", err
		}
		add([]byte(text))
	}
	if sp := azure.ServicePrincipal; sp != nil && sp.CertificateFile != "" {
		data, err := certificateFile(*sp)
		if err != nil {
			return "", err
		}
		add(data)
	}
	return hex.EncodeToString(whole.Sum(nil)), nil
}

// secret returns the application's secret: from the configuration, from its file, or from a
// credential of systemd, which a name without a slash means (systemd.exec(5), LoadCredential=).
func secret(p config.ServicePrincipal) (string, error) {
	if p.ClientSecretFile == "" {
		return p.ClientSecret.Reveal(), nil
	}
	path := p.ClientSecretFile
	if !strings.Contains(path, "/") {
		dir := os.Getenv("CREDENTIALS_DIRECTORY")
		if dir == "" {
			return "", fmt.Errorf("cannot read the credential %s: systemd has given this "+
				"process none; run it in a unit with LoadCredential=%s", path, path)
		}
		path = filepath.Join(dir, path)
	}
	data, err := regular.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("cannot read the service principal's secret: %w", err)
	}
	text := strings.TrimRight(string(data), "\r\n")
	if text == "" {
		return "", fmt.Errorf("cannot use %s: it is empty; it must hold the service principal's "+
			"secret and nothing else", path)
	}
	return text, nil
}
