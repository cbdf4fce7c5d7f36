package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// The kernel is set to go on listening to routers before it forwards, and only where pods have
// addresses of IPv6.
func TestForwarding(t *testing.T) {
	f := facts()
	f.Advertised = []string{"eth0", "vlan.7"}
	for _, tt := range []struct {
		pods []string
		want []string
	}{
		{[]string{"10.244.1.0/24"}, nil},
		{[]string{"10.244.1.0/24", "fd00::/64"}, []string{
			"net.ipv6.conf.eth0.accept_ra=2", "net.ipv6.conf.vlan/7.accept_ra=2",
			"net.ipv6.conf.all.forwarding=1",
		}},
	} {
		var got []string
		for _, item := range Bind(Render(base(), f), Bindings{PodCIDRs: tt.pods}) {
			s, ok := item.Resource.(state.Sysctl)
			if ok && strings.HasPrefix(s.Name, "net.ipv6.conf.") {
				got = append(got, s.Name+"="+s.Value)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("with %v: %v, want %v", tt.pods, got, tt.want)
		}
	}
}
