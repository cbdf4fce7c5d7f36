package flexnode

import (
	"encoding/json"
	"fmt"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// OfferedIn are the versions of the revision that the agents of a node are offered, if that is not
// the one that its owner wants, and is kept; nil if not.
func OfferedIn(h History, n Node) (*api.Versions, error) {
	if n.Assigned == n.Revision {
		return nil, nil
	}
	r, err := h.Find(n.Assigned)
	if err != nil || r == nil {
		return nil, err
	}
	chosen, err := chosenIn(r.Own)
	return &chosen.Versions, err
}

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
