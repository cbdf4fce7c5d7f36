package store

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// Nodes are found by their identities without unpacking rows.
func TestIndexKnowsIdentities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(storetest.NewMemory())
		x, _ := following(t, s)
		for key, ids := range map[string][2]string{
			"s/g/c/a": {"oid:t/one", ""}, "s/g/c/b": {"oid:t/two", "app:t/zero app:t/ONE"},
			"s/g/c/c": {"", ""}, "s/g/c2/a": {"oid:t/one", ""},
		} {
			n := node("x", 1)
			n.Identity, n.Former = ids[0], flexnode.Former(ids[1])
			putNode(t, s, key, n)
		}
		synctest.Wait()
		if got := fmt.Sprint(x.Identified("s/g/c", "one")); got != "[s/g/c/a s/g/c/b]" {
			t.Error(got)
		}
		x.packer = packer{} // nothing can be unpacked
		if got := x.Identified("s/g/c", "three"); len(got) > 0 {
			t.Error(got)
		}
	})
}
