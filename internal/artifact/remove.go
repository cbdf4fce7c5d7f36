package artifact

import (
	"fmt"
	"os"

	"github.com/Azure/AKSFlexNode/internal/remove"
)

// removeTree removes store/name and everything below it.
func removeTree(store, name string, touch Touch) error {
	dir, err := os.Open(store)
	if err != nil {
		return fmt.Errorf("cannot open the artifact store: %w", err)
	}
	defer dir.Close()
	return remove.Tree(dir, name, func(what string) (func(), error) {
		return touch.before("%s", what)
	})
}
