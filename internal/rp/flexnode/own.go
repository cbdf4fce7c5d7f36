package flexnode

import (
	"encoding/json"
	"fmt"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// chosenIn reads from a node's own layer what was chosen for it.
func chosenIn(own json.RawMessage) (Chosen, error) {
	o, err := readObject(own)
	if err != nil {
		return Chosen{}, fmt.Errorf("cannot read what was chosen for a node: %w", err)
	}
	of := func(component string) string { return textIn(o, component, "version") }
	return Chosen{PodCIDR: textIn(o, "cni", "podCIDR"), Versions: api.Versions{
		Kubernetes: of("kubernetes"), Containerd: of("containerd"), Runc: of("runc"),
		CNI: of("cni"), NPD: of("npd"),
	}}, nil
}
