package flexnode

import (
	"encoding/json"
	"fmt"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// chosenIn reads from a node's own layer what was chosen for it.
func chosenIn(own json.RawMessage) (Chosen, error) {
	type component struct {
		Version string `json:"version"`
	}
	var l struct {
		Kubernetes, Containerd, Runc, NPD component
		CNI                               struct {
			component
			PodCIDR string `json:"podCIDR"`
		}
	}
	if err := json.Unmarshal(own, &l); err != nil {
		return Chosen{}, fmt.Errorf("cannot read what was chosen for a node: %w", err)
	}
	return Chosen{PodCIDR: l.CNI.PodCIDR, Versions: api.Versions{
		Kubernetes: l.Kubernetes.Version, Containerd: l.Containerd.Version, Runc: l.Runc.Version,
		CNI: l.CNI.Version, NPD: l.NPD.Version,
	}}, nil
}
