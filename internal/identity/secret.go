package identity

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/regular"
)

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
