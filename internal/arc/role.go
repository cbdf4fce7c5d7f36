package arc

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/google/uuid"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/identity"
)

// space is the UUID namespace of our role assignments.
var space = uuid.MustParse("5f6f2f9e-6a0d-5c1f-8f0f-a1e59b3a7c11")

// AssignmentName is the GUID of a role assignment. The same assignment always has the same one, so
// that making it again makes no second one. ARM's ids are compared without case.
func AssignmentName(scope, principal, role string) string {
	return uuid.NewSHA1(space, []byte(strings.ToLower(scope+"|"+principal+"|"+role))).String()
}

// roleID is the GUID of a role, given by name or GUID.
func roleID(role string) string {
	if id, ok := config.Roles()[role]; ok {
		return id
	}
	return strings.ToLower(role)
}

// assign gives the identity its roles on the cluster and returns when the newest of them was given.
func (a Arc) assign(ctx context.Context, r *Record, principal string) (newest time.Time,
	err error) {
	scope := a.Config.TargetCluster.ResourceID
	client, err := client(a, armauthorization.NewRoleAssignmentsClient, a.Config.SubscriptionID)
	if err != nil {
		return newest, err
	}
	for _, role := range a.Config.Arc.Roles {
		mine := Assignment{Scope: scope, Name: AssignmentName(scope, principal, roleID(role))}
		before := slices.Clone(r.Assignments)
		if !slices.ContainsFunc(r.Assignments, mine.is) {
			r.Assignments = append(r.Assignments, mine)
			if err := a.Save(*r); err != nil {
				return newest, err
			}
		}
		made, err := a.create(ctx, client, mine, principal, roleID(role))
		if hasCode(err, "RoleAssignmentExists") {
			r.Assignments = before // others have given it, and it is not ours to take
			if err := a.Save(*r); err != nil {
				return newest, err
			}
			continue
		}
		if err != nil {
			return newest, identity.Explain(err,
				identity.Need{Doing: fmt.Sprintf("give the Arc identity the role %q", role),
					Role: accessAdmin, Scope: scope})
		}
		if made.After(newest) {
			newest = made
		}
	}
	return newest, nil
}

// is compares as ARM does, without case.
func (a Assignment) is(b Assignment) bool {
	return strings.EqualFold(a.Scope, b.Scope) && strings.EqualFold(a.Name, b.Name)
}

// create makes one assignment. It waits until a new principal is known everywhere.
func (a Arc) create(ctx context.Context, client *armauthorization.RoleAssignmentsClient,
	mine Assignment, principal, role string) (made time.Time, err error) {
	properties := &armauthorization.RoleAssignmentProperties{
		PrincipalID:      to.Ptr(principal),
		PrincipalType:    to.Ptr(armauthorization.PrincipalTypeServicePrincipal),
		RoleDefinitionID: to.Ptr("/providers/Microsoft.Authorization/roleDefinitions/" + role),
	}
	parameters := armauthorization.RoleAssignmentCreateParameters{Properties: properties}
	err = a.retry(ctx, 10*time.Minute, "waiting for Azure to know the identity of the Arc machine",
		func() (bool, error) {
			got, err := client.Create(ctx, mine.Scope, mine.Name, parameters, nil)
			if hasCode(err, "PrincipalNotFound") {
				return false, nil
			}
			if err == nil && got.Properties != nil && got.Properties.CreatedOn != nil {
				made = *got.Properties.CreatedOn
			}
			return err == nil, err
		})
	return made, err
}

func (a Arc) unassign(ctx context.Context, mine Assignment) error {
	client, err := client(a, armauthorization.NewRoleAssignmentsClient, a.Config.SubscriptionID)
	if err != nil {
		return err
	}
	if _, err := client.Delete(ctx, mine.Scope, mine.Name, nil); err != nil {
		return identity.Explain(err, identity.Need{Doing: "remove the role assignment " + mine.Name,
			Role: accessAdmin, Scope: mine.Scope})
	}
	return nil
}
