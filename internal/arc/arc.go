// Package arc makes a machine known to Azure Arc and gives its identity the roles that it needs on the cluster. It is a conversation
// with strangers - azcmagent on this machine, Resource Manager, the cluster - and so is ordinary code, not resources: what it is
// about to do is recorded first, so that a run that was killed is finished by the next, and all of it can be taken back.
package arc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/hybridcompute/armhybridcompute"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/identity"
)

// Machine runs programs on this machine and restarts its services.
type Machine interface {
	// Run runs a program; secret, if not nil, is the content of a file that only root reads while it runs, whose path is the last
	// argument.
	Run(ctx context.Context, secret []byte, argv ...string) ([]byte, error)
	RestartUnit(ctx context.Context, name string) error
}

// Record is what has been done, or is being done, to this machine and in Azure: all that is to be taken back.
type Record struct {
	// MachineID is the ARM id of the Arc machine.
	MachineID string `json:"machineId"`
	// Connected tells that we have connected the machine; one that somebody else has stays connected.
	Connected bool `json:"connected"`
	// Assignments are the role assignments that we have made.
	Assignments []Assignment `json:"assignments,omitempty"`
}

// Assignment is a role assignment of ours.
type Assignment struct {
	Scope string `json:"scope"`
	Name  string `json:"name"`
}

// Arc enrols this machine.
type Arc struct {
	Config     config.Azure
	Machine    Machine
	Credential azcore.TokenCredential
	Options    *arm.ClientOptions
	// Save writes the record down; it is called before every touch.
	Save func(Record) error
	// Say tells what is being waited for.
	Say func(format string, args ...any)
	// Poll is the first pause between two looks; 0 is 2 s.
	Poll time.Duration
}

// ErrNotInstalled tells that the Arc agent is not on this machine.
var ErrNotInstalled = errors.New("the Azure Connected Machine agent (azcmagent) is not installed; install it from packages.microsoft.com (apt-get install azcmagent), or with the script of the Azure portal (Azure Arc, Machines, Add)")

// shown is what `azcmagent show --json` says.
type shown struct {
	ResourceName   string `json:"resourceName"`
	ResourceGroup  string `json:"resourceGroup"`
	SubscriptionID string `json:"subscriptionId"`
}

// show asks the Arc agent how it is.
func (a Arc) show(ctx context.Context) (shown, error) {
	var s shown
	out, err := a.Machine.Run(ctx, nil, "azcmagent", "show", "--json")
	if errors.Is(err, fs.ErrNotExist) {
		return s, ErrNotInstalled
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(out, &s); err != nil {
		return s, fmt.Errorf("cannot read what azcmagent shows: %w", err)
	}
	return s, nil
}

// registered tells whether the machine belongs to Arc. One that is, but has lost its way to Azure, shows as Disconnected.
func (s shown) registered() bool { return s.ResourceName != "" }

func (s shown) id() string { return machineID(s.SubscriptionID, s.ResourceGroup, s.ResourceName) }

func machineID(subscription, group, name string) string {
	return fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.HybridCompute/machines/%s", subscription, group, name)
}

// Check finds out, without touching anything, whether the machine can be enrolled.
func (a Arc) Check(ctx context.Context) error {
	_, err := a.show(ctx)
	return err
}

// Enrol connects the machine, unless it is connected, and gives its identity its roles on the cluster. It returns the identity's
// object id and when its newest role was assigned.
func (a Arc) Enrol(ctx context.Context, r Record) (principal string, newest time.Time, err error) {
	is, err := a.show(ctx)
	if err != nil {
		return "", time.Time{}, err
	}
	want := a.Config.Arc
	if !is.registered() {
		is = shown{ResourceName: want.MachineName, ResourceGroup: want.ResourceGroup, SubscriptionID: a.Config.SubscriptionID}
		r.MachineID, r.Connected = is.id(), true
		if err := a.Save(r); err != nil {
			return "", time.Time{}, err
		}
		a.say("connecting the machine to Azure Arc as %s", want.MachineName)
		if err := a.connect(ctx); err != nil {
			return "", time.Time{}, err
		}
	} else if r.MachineID != is.id() {
		r.MachineID, r.Connected = is.id(), false
		if err := a.Save(r); err != nil {
			return "", time.Time{}, err
		}
	}
	principal, err = a.principal(ctx, is)
	if err != nil || want.AutoRoleAssignment == nil || !*want.AutoRoleAssignment {
		return principal, time.Time{}, err
	}
	newest, err = a.assign(ctx, &r, principal)
	return principal, newest, err
}

func (a Arc) say(format string, args ...any) {
	if a.Say != nil {
		a.Say(format, args...)
	}
}

// connect runs azcmagent connect. The token is in a file that only root reads, never among the arguments, which every user of the
// machine can see.
func (a Arc) connect(ctx context.Context) error {
	token, err := a.Credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{a.Config.ResourceManagerEndpoint + "/.default"}})
	if err != nil {
		return identity.Explain(err, identity.Need{Doing: "get a token for connecting the machine"})
	}
	settings := map[string]any{
		"access-token": token.Token, "subscription-id": a.Config.SubscriptionID, "resource-group": a.Config.Arc.ResourceGroup, "tenant-id": a.Config.TenantID,
		"location": a.Config.Arc.Location, "resource-name": a.Config.Arc.MachineName, "cloud": clouds[a.Config.Cloud],
	}
	if tags := join(a.Config.Arc.Tags); tags != "" {
		settings["tags"] = tags
	}
	file, err := json.Marshal(settings)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	if _, err := a.Machine.Run(ctx, file, "azcmagent", "connect", "--config"); err != nil {
		return fmt.Errorf("cannot connect the machine to Azure Arc: %w; the identity needs the role %q on the resource group %s", err, "Azure Connected Machine Onboarding", a.Config.Arc.ResourceGroup)
	}
	return nil
}

// clouds are the names that azcmagent has for the clouds.
var clouds = map[string]string{config.PublicCloud: "AzureCloud", config.USGovernmentCloud: "AzureUSGovernment", config.ChinaCloud: "AzureChinaCloud"}

// principal waits until Resource Manager knows the machine and its identity, and returns the identity's object id.
func (a Arc) principal(ctx context.Context, is shown) (string, error) {
	machines, err := armhybridcompute.NewMachinesClient(is.SubscriptionID, a.Credential, a.Options)
	if err != nil {
		return "", fmt.Errorf("cannot make a client of Resource Manager: %w", err)
	}
	principal := ""
	err = a.retry(ctx, 5*time.Minute, "waiting for Azure to know the Arc machine", func() (bool, error) {
		got, err := machines.Get(ctx, is.ResourceGroup, is.ResourceName, nil)
		if failed, ok := errors.AsType[*azcore.ResponseError](err); ok && failed.ErrorCode == "ResourceNotFound" {
			return false, nil
		}
		if err != nil {
			return false, identity.Explain(err, identity.Need{Doing: "read the Arc machine", Role: "Azure Connected Machine Onboarding", Scope: is.id()})
		}
		if got.Identity == nil || got.Identity.PrincipalID == nil || *got.Identity.PrincipalID == "" {
			return false, nil
		}
		principal = *got.Identity.PrincipalID
		return true, nil
	})
	return principal, err
}

// retry asks again, later each time, until it is done, fails, or too long has passed.
func (a Arc) retry(ctx context.Context, most time.Duration, waiting string, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	pause := a.Poll
	if pause == 0 {
		pause = 2 * time.Second
	}
	for began := time.Now(); ; pause = min(pause*3/2, 30*time.Second) {
		done, err := ask()
		if err != nil || done {
			return err
		}
		a.say("%s (%s)", waiting, time.Since(began).Truncate(time.Second))
		select {
		case <-ctx.Done():
			return fmt.Errorf("gave up %s after %s: %w", waiting, time.Since(began).Truncate(time.Second), ctx.Err())
		case <-time.After(pause):
		}
	}
}

// Leave takes back what the record says: role assignments, the machine's resource, and its connection. It goes on after an error
// and returns all of them; what could not be taken back is saved as still to do.
func (a Arc) Leave(ctx context.Context, r Record) error {
	var errs []error
	var left []Assignment
	for _, assignment := range r.Assignments {
		if err := a.unassign(ctx, assignment); err != nil {
			errs, left = append(errs, err), append(left, assignment)
		}
	}
	r.Assignments = left
	if r.Connected {
		if err := a.disconnect(ctx, r); err != nil {
			errs = append(errs, err)
		} else {
			r.Connected = false
		}
	}
	return errors.Join(append(errs, a.Save(r))...)
}

// disconnect deletes the machine's resource, and then has azcmagent forget it.
func (a Arc) disconnect(ctx context.Context, r Record) error {
	id, err := arm.ParseResourceID(r.MachineID)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	machines, err := armhybridcompute.NewMachinesClient(id.SubscriptionID, a.Credential, a.Options)
	if err != nil {
		return fmt.Errorf("cannot make a client of Resource Manager: %w", err)
	}
	a.say("removing the machine from Azure Arc")
	if _, err := machines.Delete(ctx, id.ResourceGroupName, id.Name, nil); err != nil {
		return identity.Explain(err, identity.Need{Doing: "delete the Arc machine " + id.Name, Role: "Azure Connected Machine Resource Administrator", Scope: r.MachineID})
	}
	is, err := a.show(ctx)
	if err != nil || !is.registered() {
		return err
	}
	if _, err := a.Machine.Run(ctx, nil, "azcmagent", "disconnect", "--force-local-only"); err != nil {
		return fmt.Errorf("cannot disconnect the machine from Azure Arc: %w", err)
	}
	return nil
}
