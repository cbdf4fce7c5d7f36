// Package arc enrols a machine with Azure Arc and gives its identity the roles that it needs on the
// cluster. It talks to others - azcmagent on this machine, Resource Manager, the cluster - and so
// is ordinary code, not resources: it records each step before it takes it, so that the next run
// can finish a killed one, and everything can be undone.
package arc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/hybridcompute/armhybridcompute"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/identity"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

// Machine runs programs on this machine.
type Machine interface {
	// Run runs a program for at most limit; secret, if not nil, is passed in a file that only root can
	// read, whose path is the last argument.
	Run(
		ctx context.Context, limit time.Duration, secret []byte, argv ...string,
	) ([]byte, error)
}

// Record holds everything that was, or is being, done to this machine and in Azure, for its undo.
type Record struct {
	MachineID string `json:"machineId"` // the ARM id of the Arc machine
	// Connected is set if we have connected the machine; one that others connected is left alone.
	Connected bool `json:"connected"`
	// Principal is the object id of its identity, "" if not known yet. A machine of that name with
	// another one has replaced this one.
	Principal string `json:"principal,omitempty"`
	Proxy     string `json:"proxy,omitempty"` // the proxy that we gave the Arc agent
	// Assignments are the role assignments that we have made.
	Assignments []Assignment `json:"assignments,omitempty"`
}

// Owes reports whether something in Azure must be undone.
func (r Record) Owes() bool { return r.Connected || len(r.Assignments) > 0 }

// Deletion returns a line with the command to delete the machine in Azure; "" for no machine.
func (r Record) Deletion() string {
	id, err := arm.ParseResourceID(r.MachineID)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("\nthe Arc machine is left in Azure; its owner deletes it with: "+
		"az connectedmachine delete --subscription %s --resource-group %s --name %s",
		id.SubscriptionID, id.ResourceGroupName, id.Name)
}

// Assignment is a role assignment of ours.
type Assignment struct {
	Scope string `json:"scope"`
	Name  string `json:"name"`
}

// Arc enrols this machine.
type Arc struct {
	Config  config.Azure
	Machine Machine
	// Restart restarts a unit; only Enrol and Leave call it.
	Restart    func(ctx context.Context, unit string) error
	Credential azcore.TokenCredential
	Options    *arm.ClientOptions
	// Proxy is the configured proxy for https, for the Arc agent too; "" is none.
	Proxy config.Secret
	Save  func(Record) error               // stores the record before every change
	Say   func(format string, args ...any) // reports what is being waited for
	Warn  func(format string, args ...any) // reports what the owner of the machine should know
	Poll  time.Duration                    // the first pause between two requests; 0 is 2 s
}

// ErrNotInstalled reports that the Arc agent is not on this machine.
var ErrNotInstalled = errors.New("the Azure Connected Machine agent (azcmagent) is not " +
	"installed; install the package azcmagent from packages.microsoft.com, or use the script of " +
	"the Azure portal (Azure Arc, Machines, Add)")

// Limits for azcmagent: for local commands, and for connecting the machine.
const localLimit, connectLimit = 30 * time.Second, 10 * time.Minute

func (a Arc) azcmagent(ctx context.Context, args ...string) ([]byte, error) {
	out, err := a.Machine.Run(ctx, localLimit, nil, append([]string{"azcmagent"}, args...)...)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotInstalled
	}
	return out, err
}

// Enrol connects the machine, unless it is connected, and assigns the roles on the cluster to its
// identity. It reconnects a machine that we have connected if Azure no longer knows it or its
// identity has expired. It returns the identity's object id and the time of its newest assignment.
func (a Arc) Enrol(ctx context.Context, r Record) (principal string, newest time.Time, err error) {
	is, err := a.Status(ctx)
	if err == nil && is.Name != "" {
		is, err = a.check(ctx, is, &r)
	}
	if err == nil && is.Name == "" {
		is, err = a.join(ctx, &r)
	}
	if err == nil {
		principal, err = a.principal(ctx, is)
	}
	if err == nil && r.Connected {
		r.Principal = principal
		err = errors.Join(a.Save(r), a.tag(ctx, is))
	}
	if err != nil || !Assigns(a.Config) {
		return principal, newest, err
	}
	newest, err = a.assign(ctx, &r, principal)
	return principal, newest, err
}

// check compares a machine with the record. It returns an unregistered Status to reconnect ours.
func (a Arc) check(ctx context.Context, is Status, r *Record) (Status, error) {
	_, found, err := a.find(ctx, is)
	if err != nil {
		return is, err
	}
	lost := !found || is.Agent == Expired
	switch ours := r.names(is) && r.Connected; {
	case ours && lost:
		a.Say("leaving Azure Arc, which no longer accepts the machine, to connect it again")
		err := a.Leave(ctx, *r)
		*r = Record{}
		return Status{}, err
	case ours && is.Agent == Disconnected:
		a.Say("restarting the Arc agent, which does not reach Azure")
		return is, errors.Join(a.setProxy(ctx, r), a.Restart(ctx, "himdsd.service"))
	case ours:
		return is, a.setProxy(ctx, r)
	case lost:
		return is, fmt.Errorf("cannot use the Arc machine %s: Azure Arc no longer accepts it; "+
			"disconnect it (azcmagent disconnect --force-local-only) and run the command again",
			is.Name)
	case r.names(is):
		return is, nil
	}
	r.MachineID, r.Connected = is.MachineID(), false
	return is, a.Save(*r)
}

func (a Arc) join(ctx context.Context, r *Record) (Status, error) {
	want := a.Config.Arc
	is := Status{Name: want.MachineName, Group: want.ResourceGroup,
		Subscription: a.Config.SubscriptionID}
	_, taken, err := a.find(ctx, is)
	switch {
	case err != nil:
		return is, fmt.Errorf("cannot connect the machine to Azure Arc: %w", err)
	case taken && !(r.Connected && r.names(is)):
		return is, fmt.Errorf("cannot connect the machine to Azure Arc: the resource group %s has an "+
			"Arc machine %s; set azure.arc.machineName, or delete that one", is.Group, is.Name)
	case taken: // an earlier run was interrupted: azcmagent takes no name that is in use
		if err := a.Leave(ctx, *r); err != nil {
			return is, err
		}
		*r = Record{}
	}
	r.MachineID, r.Connected = is.MachineID(), true
	if err := a.Save(*r); err != nil {
		return is, err
	}
	if err := a.setProxy(ctx, r); err != nil {
		return is, err
	}
	a.Say("connecting the machine to Azure Arc as %s", want.MachineName)
	return is, a.connect(ctx)
}

// connect runs azcmagent connect. The token is in a file that only root can read, and not in the
// arguments, which every user of the machine can see.
func (a Arc) connect(ctx context.Context) error {
	token, err := a.Credential.GetToken(ctx,
		policy.TokenRequestOptions{Scopes: []string{a.Config.ResourceManagerEndpoint +
			"/.default"}})
	if err != nil {
		return identity.Explain(err, identity.Need{Doing: "get a token for connecting the machine"})
	}
	settings := map[string]any{
		"access-token": token.Token, "subscription-id": a.Config.SubscriptionID,
		"resource-group": a.Config.Arc.ResourceGroup, "tenant-id": a.Config.TenantID,
		"location": a.Config.Arc.Location, "resource-name": a.Config.Arc.MachineName,
		"cloud": clouds[a.Config.Cloud],
	}
	if tags := pairs(a.Config.Arc.Tags); tags != "" {
		settings["tags"] = tags
	}
	file, _ := json.Marshal(settings) // texts can be encoded
	_, err = a.Machine.Run(ctx, connectLimit, file, "azcmagent", "connect", "--config")
	if err != nil {
		return fmt.Errorf("cannot connect the machine to Azure Arc: %w; the identity needs the "+
			"role %q on the resource group %s", err, onboarding, a.Config.Arc.ResourceGroup)
	}
	return nil
}

var clouds = map[string]string{config.PublicCloud: "AzureCloud",
	config.USGovernmentCloud: "AzureUSGovernment", config.ChinaCloud: "AzureChinaCloud"}

func (a Arc) principal(ctx context.Context, is Status) (principal string, err error) {
	err = a.retry(ctx, 5*time.Minute, "waiting for the Arc machine to appear in Azure",
		func() (bool, error) {
			principal, _, err = a.find(ctx, is)
			return principal != "", err
		})
	return principal, err
}

func (a Arc) find(ctx context.Context, is Status) (principal string, found bool, err error) {
	machines := client(a, armhybridcompute.NewMachinesClient, is.Subscription)
	got, err := machines.Get(ctx, is.Group, is.Name, nil)
	if isMissing(err) {
		return "", false, nil
	}
	if err != nil {
		group, _, _ := strings.Cut(is.MachineID(), "/providers/") // there may be no such machine yet
		return "", false, identity.Explain(err, identity.Need{
			Doing: "read the Arc machine", Role: onboarding, Scope: group})
	}
	if got.Identity != nil && got.Identity.PrincipalID != nil {
		principal = *got.Identity.PrincipalID
	}
	return principal, true, nil
}

func isMissing(err error) bool { return hasCode(err, "ResourceNotFound", "ResourceGroupNotFound") }

func hasCode(err error, codes ...string) bool {
	failed, ok := errors.AsType[*azcore.ResponseError](err)
	return ok && slices.Contains(codes, failed.ErrorCode)
}

func client[C any](
	a Arc, make func(string, azcore.TokenCredential, *arm.ClientOptions) (C, error),
	subscription string,
) C {
	c, _ := make(subscription, a.Credential, a.Options) // fails only for options without an endpoint
	return c
}

// retry repeats a request, with growing pauses, until it is done, fails, or too long has passed.
func (a Arc) retry(ctx context.Context, most time.Duration, waiting string,
	ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	pauses := wait.Backoff{Base: cmp.Or(a.Poll, 2*time.Second), Max: 30 * time.Second}
	for began := time.Now(); ; {
		if done, err := ask(); err != nil || done {
			return err
		}
		a.Say("%s (%s)", waiting, time.Since(began).Truncate(time.Second))
		if !wait.Sleep(ctx, pauses.Next()) {
			return fmt.Errorf("gave up %s after %s: %w", waiting,
				time.Since(began).Truncate(time.Second), ctx.Err())
		}
	}
}

// Leave undoes everything in the record: role assignments, the machine's resource, its connection,
// and the agent's proxy. It continues after errors, returns all, and saves what remains.
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
	errs = append(errs, a.Save(r), a.clearProxy(ctx, &r))
	return errors.Join(errs...)
}

func (a Arc) disconnect(ctx context.Context, r Record) error {
	id, err := arm.ParseResourceID(r.MachineID)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	machines := client(a, armhybridcompute.NewMachinesClient, id.SubscriptionID)
	a.Say("removing the machine from Azure Arc")
	// Deleting needs a role that connecting does not, so the machine is deleted only if it exists.
	principal, found, err := a.find(ctx, Status{Subscription: id.SubscriptionID,
		Group: id.ResourceGroupName, Name: id.Name})
	if err != nil || found && (r.Principal == "" || r.Principal == principal) {
		if _, err := machines.Delete(ctx, id.ResourceGroupName, id.Name, nil); err != nil {
			return identity.Explain(err, identity.Need{Doing: "delete the Arc machine " + id.Name,
				Role: administrator, Scope: r.MachineID})
		}
	}
	is, err := a.Status(ctx)
	if errors.Is(err, ErrNotInstalled) || err == nil && !r.names(is) { // or others have connected it
		return nil
	}
	if err == nil {
		_, err = a.azcmagent(ctx, "disconnect", "--force-local-only")
	}
	if err != nil {
		return fmt.Errorf("cannot disconnect the machine from Azure Arc: %w", err)
	}
	return nil
}

// plain reports whether azcmagent accepts a tag unchanged: it splits its list at commas, and has
// its own rules for quotes and spaces.
func plain(key, value string) bool { return !strings.ContainsAny(key+value, ",'\"= \\") }

func pairs(tags map[string]string) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if plain(key, tags[key]) {
			list = append(list, key+"="+tags[key])
		}
	}
	return strings.Join(list, ",")
}

// tag adds the tags to the machine's resource, beside its existing ones.
func (a Arc) tag(ctx context.Context, is Status) error {
	if len(a.Config.Arc.Tags) == 0 {
		return nil
	}
	machines := client(a, armhybridcompute.NewMachinesClient, is.Subscription)
	need := identity.Need{Doing: "tag the Arc machine", Role: onboarding, Scope: is.MachineID()}
	got, err := machines.Get(ctx, is.Group, is.Name, nil)
	if err != nil {
		return identity.Explain(err, need)
	}
	all, changed := map[string]*string{}, false
	maps.Copy(all, got.Tags)
	for key, value := range a.Config.Arc.Tags {
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
