package stories

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
)

// A refusal of a registry to kubelet's program is a condition of the node, which stays healthy,
// until the refusal is old.
func TestRegistryRefuses(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if c := w.condition("RegistriesAllow"); c.Status != health.True {
		t.Errorf("before: %+v", c)
	}
	const refusal = "the registry contoso.azurecr.io refuses the identity of this machine"
	file := config.RunDir + "/registry-contoso.azurecr.io"
	w.write(file, refusal)
	if c := w.condition("RegistriesAllow"); c.Status != health.False || c.Owner != health.OwnerAzure ||
		!strings.HasPrefix(c.Message, "images cannot be pulled: "+refusal) ||
		c.Ill() {
		t.Errorf("refused: %+v", c)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(w.root, file), old, old); err != nil {
		t.Fatal(err)
	}
	if c := w.condition("RegistriesAllow"); c.Status != health.True {
		t.Errorf("an hour later: %+v", c)
	}
}
