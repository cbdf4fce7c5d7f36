package health

import (
	"testing"

	"github.com/Azure/AKSFlexNode/internal/config"
)

func TestMetadataGuarded(t *testing.T) {
	answered := func(m Metadata) Evidence {
		e := machine(func(*Machine) {})
		e.Metadata = Answered(m, nil)
		return e
	}
	allowed := answered(Metadata{})
	allowed.Wanted.Network.Metadata = config.MetadataAllow
	check(t, "MetadataGuarded", []expect{
		blank("NotChecked"),
		{"refused", answered(Metadata{Guarded: true, Tried: true, Refused: true}), True, "", "", ""},
		{"reached", answered(Metadata{Guarded: true, Tried: true, Reached: true}), False,
			"MetadataReachable", OwnerMachine, "bypasses netfilter"},
		{"not loaded", answered(Metadata{Tried: true, Refused: true}), False, "RulesNotLoaded",
			OwnerMachine, "drift --repair"},
		{"no pod", answered(Metadata{Guarded: true}), Unknown, "NotChecked", "", "no pod"},
		{"silent", answered(Metadata{Guarded: true, Tried: true}), Unknown, "NotAnswered", "",
			"neither"},
		{"allowed", allowed, Unknown, "Allowed", "", "network.metadata"},
	})
}
