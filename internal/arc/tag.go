package arc

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/hybridcompute/armhybridcompute"

	"github.com/Azure/AKSFlexNode/internal/identity"
)

// plain reports whether azcmagent takes a tag as it is: it splits its list at commas, and has rules
// of its own for quotes and spaces.
func plain(key, value string) bool { return !strings.ContainsAny(key+value, ",'\"= \\") }

// pairs writes tags as azcmagent takes them, those that it takes as they are.
func pairs(tags map[string]string) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if plain(key, tags[key]) {
			list = append(list, key+"="+tags[key])
		}
	}
	return strings.Join(list, ",")
}

// tag puts those tags on the machine's resource that azcmagent could not, beside all that it has.
func (a Arc) tag(ctx context.Context, is Status) error {
	wanted := maps.Clone(a.Config.Arc.Tags)
	maps.DeleteFunc(wanted, plain)
	if len(wanted) == 0 {
		return nil
	}
	machines, err := client(a, armhybridcompute.NewMachinesClient, is.Subscription)
	if err != nil {
		return err
	}
	need := identity.Need{Doing: "tag the Arc machine", Role: onboarding, Scope: is.MachineID()}
	got, err := machines.Get(ctx, is.Group, is.Name, nil)
	if err != nil {
		return identity.Explain(err, need)
	}
	all, changed := got.Tags, false
	if all == nil {
		all = map[string]*string{}
	}
	for key, value := range wanted {
		if all[key] == nil || *all[key] != value {
			all[key], changed = &value, true
		}
	}
	if !changed {
		return nil
	}
	update := armhybridcompute.MachineUpdate{Tags: all}
	if _, err := machines.Update(ctx, is.Group, is.Name, update, nil); err != nil {
		return fmt.Errorf("the machine is connected: %w", identity.Explain(err, need))
	}
	return nil
}
