package flexnode

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"testing/quick"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// The conversions of the API's settings lose nothing, and this version has the form of the rows.
func TestStoredSettings(t *testing.T) {
	node := func(d api.Desired) bool {
		stored := desiredOf(d)
		return reflect.DeepEqual(stored.API(), d) && bytes.Equal(encode(stored), encode(d))
	}
	cluster := func(p api.ClusterProperties) bool {
		p.Message = "" // of the last probe
		stored := PropertiesOf(p)
		stored.ProvisioningState, stored.KubernetesVersion = p.ProvisioningState, p.KubernetesVersion
		stored.Reachable = p.Reachable // these are the provider's
		return reflect.DeepEqual(stored.API(), p) && bytes.Equal(encode(stored), encode(p))
	}
	if err := errors.Join(quick.Check(node, nil), quick.Check(cluster, nil)); err != nil {
		t.Error(err)
	}
}
