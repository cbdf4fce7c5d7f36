package arc

import (
	"maps"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/hybridcompute/armhybridcompute"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/config"
)

// What an identity lacks is asked of Resource Manager before anything is made: by name, for whom,
// at which scope, with what cures it, and also what taking it back takes.
func TestGaps(t *testing.T) {
	const (
		read    = "Microsoft.HybridCompute/machines/read"
		write   = "Microsoft.HybridCompute/machines/write"
		erase   = "Microsoft.HybridCompute/machines/delete"
		cluster = "Microsoft.ContainerService/managedClusters/read"
		assign  = "Microsoft.Authorization/roleAssignments/write"
		take    = "Microsoft.Authorization/roleAssignments/delete"
	)
	give := func(w *world, role, scope string) {
		w.sim.Assign(azuresim.Assignment{Scope: scope, RoleID: role, PrincipalID: operator})
	}
	const (
		onboarder   = "b64e21ea-ac4e-4cdf-9dc9-5b892992bee7"
		contributor = "b24988ac-6180-42a0-ab88-20f7382dd24c"
		user        = "4abbcc35-e782-43d8-92c5-2d3f1bd2253f"
		access      = "18d7d88d-d35e-4fb5-a5c3-7773c20a72d9"
	)
	for _, tt := range []struct {
		name    string
		change  func(*world)
		wanting Wanting
		manual  bool
		want    string
	}{
		{name: "owner", change: func(*world) {}},
		{name: "nothing", change: func(w *world) { w.sim.Revoke(operator) },
			want: strings.Join([]string{read, write, erase, cluster, assign, take}, " ")},
		{name: "the documents' three roles", change: func(w *world) {
			w.sim.Revoke(operator)
			give(w, onboarder, groupID)
			give(w, access, clusterID)
			give(w, user, clusterID)
		}, want: erase},
		{name: "a role that takes away", change: func(w *world) {
			w.sim.Revoke(operator)
			give(w, contributor, "/subscriptions/"+subscription)
		}, want: assign + " " + take},
		{name: "roles are the operator's affair", manual: true, change: func(w *world) {
			w.sim.Revoke(operator)
			give(w, onboarder, groupID)
		}, want: erase + " " + cluster},
		{name: "connected and located", change: func(w *world) { w.sim.Revoke(operator) },
			wanting: Wanting{Located: true, Connected: true}, want: read + " " + assign + " " + take},
	} {
		w := newWorld(t)
		tt.change(w)
		a, ctx := w.arc(0)
		if tt.manual {
			a.Config.Arc.AutoRoleAssignment = nil
		}
		gaps, principal, err := a.Gaps(ctx, tt.wanting)
		var got []string
		for _, gap := range gaps {
			got = append(got, gap.Action)
			if gap.Later != (gap.Action == erase || gap.Action == take) {
				t.Errorf("%s: %+v", tt.name, gap)
			}
		}
		if err != nil || principal != operator || strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %s lacks %q, %v; want %q", tt.name, principal, got, err, tt.want)
		}
		if len(w.sim.Machines()) > 0 || len(w.argv) > 0 {
			t.Errorf("%s: something was made", tt.name)
		}
		if text := Explain(gaps, principal); tt.name == "nothing" &&
			(!strings.Contains(text, write+" on "+groupID) ||
				strings.Count(text, GrantCommand(operator, onboarding, groupID)) != 1 ||
				!strings.Contains(text, GrantCommand(operator, accessAdmin, clusterID))) {
			t.Errorf("explained as\n%s", text)
		}
	}
	const want = `az role assignment create --assignee ` + operator + ` --role "Reader" --scope /x`
	if got := GrantCommand(operator, config.RoleReader, "/x"); got != want {
		t.Errorf("the cure is %q", got)
	}
}

// A tag is on the machine as it was configured, whatever is in it, also after a run that was killed
// between the connection and the tags.
func TestTags(t *testing.T) {
	tags := map[string]string{
		"environment": "edge", "site": `Hall 3, "north"`, "owner's": "a=b,c=d", "path": `C:\x`,
	}
	total := 0
	for n := 0; ; n++ {
		w := newWorld(t)
		a, ctx := w.arc(n)
		a.Config.Arc.Tags = tags
		_, _, err := a.Enrol(ctx, w.record)
		if n == 0 && err != nil {
			t.Fatal(err)
		}
		if total == 0 {
			total = w.fuse.n
		}
		a, ctx = w.arc(0)
		a.Config.Arc.Tags = maps.Clone(tags)
		a.Config.Arc.Tags["environment"] = "lab" // its owner has changed it since
		if _, _, err := a.Enrol(ctx, w.record); err != nil {
			t.Fatalf("killed at %d, again: %v", n, err)
		}
		machines := client(a, armhybridcompute.NewMachinesClient, subscription)
		got, err := machines.Get(ctx, "edge", "edge-1", nil)
		if err != nil {
			t.Fatal(err)
		}
		for key, value := range a.Config.Arc.Tags {
			if got.Tags[key] == nil || *got.Tags[key] != value {
				t.Errorf("killed at %d: the tag %s is not %q: %v", n, key, value, got.Tags)
			}
		}
		if n >= min(total, 12) || t.Failed() {
			break
		}
	}
	if pairs(tags) != "environment=edge" {
		t.Errorf("azcmagent is given %q", pairs(tags))
	}
}
