package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/Azure/AKSFlexNode/internal/config"
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
