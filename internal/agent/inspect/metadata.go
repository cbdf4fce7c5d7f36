package inspect

import (
	"context"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// metadataEvidence tries from the network of a pod whether the metadata service of this machine can
// be reached.
func metadataEvidence(
	ctx context.Context, h *Node, c config.Config,
) health.Answer[health.Metadata] {
	joining := h.Saved.Transition != nil && h.Saved.Transition.Kind == transition.Join
	if c.Network.Metadata == config.MetadataAllow || joining {
		return health.Answer[health.Metadata]{}
	}
	table, err := h.Reader.Observe(ctx, state.TableKey(node.MetadataTable))
	if err != nil {
		return health.Answered(health.Metadata{}, err)
	}
	loaded, _ := table.(state.Table)
	m := health.Metadata{Guarded: loaded.Rules > 0}
	service := netip.AddrPortFrom(netip.MustParseAddr(node.MetadataAddress), 80)
	err = h.Reader.DialFromPod(ctx, service)
	m.Tried = !errors.Is(err, host.ErrNoPod)
	m.Reached = err == nil
	m.Refused = errors.Is(err, unix.ECONNREFUSED)
	return health.Answered(m, nil)
}
