package arc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/google/uuid"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/identity"
)

var space = uuid.MustParse("5f6f2f9e-6a0d-5c1f-8f0f-a1e59b3a7c11")

// AssignmentName returns the GUID of a role assignment. It is deterministic, so that repeating an
// assignment makes no second one. ARM's ids are compared without case.
func AssignmentName(scope, principal, role string) string {
	return uuid.NewSHA1(space, []byte(strings.ToLower(scope+"|"+principal+"|"+role))).String()
}

func roleID(role string) string {
	if id, ok := config.Roles()[role]; ok {
		return id
	}
	return strings.ToLower(role)
}

func (a Arc) assign(
	ctx context.Context, r *Record, principal string,
) (newest time.Time, err error) {
	scope := a.Config.TargetCluster.ResourceID
	client := client(a, armauthorization.NewRoleAssignmentsClient, a.Config.SubscriptionID)
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
			r.Assignments = before // others have made it, and it is not ours to remove
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

func (a Assignment) is(b Assignment) bool {
	return strings.EqualFold(a.Scope, b.Scope) && strings.EqualFold(a.Name, b.Name)
}

// create makes one assignment. It waits until a new principal is known everywhere.
func (a Arc) create(ctx context.Context, client *armauthorization.RoleAssignmentsClient,
	mine Assignment, principal, role string) (made time.Time, err error) {
	properties := &armauthorization.RoleAssignmentProperties{
		PrincipalID:      new(principal),
		PrincipalType:    new(armauthorization.PrincipalTypeServicePrincipal),
		RoleDefinitionID: new("/providers/Microsoft.Authorization/roleDefinitions/" + role),
	}
	parameters := armauthorization.RoleAssignmentCreateParameters{Properties: properties}
	const doing = "waiting for the identity of the Arc machine to appear in Azure"
	err = a.retry(ctx, 10*time.Minute, doing, func() (bool, error) {
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
	client := client(a, armauthorization.NewRoleAssignmentsClient, a.Config.SubscriptionID)
	if _, err := client.Delete(ctx, mine.Scope, mine.Name, nil); err != nil && !isMissing(err) {
		return identity.Explain(err, identity.Need{Doing: "remove the role assignment " + mine.Name,
			Role: accessAdmin, Scope: mine.Scope})
	}
	return nil
}

// The roles that allow an identity to enrol and to leave.
const (
	onboarding    = "Azure Connected Machine Onboarding"
	administrator = "Azure Connected Machine Resource Administrator"
	accessAdmin   = "User Access Administrator"
)

// Gap is a permission that an identity lacks.
type Gap struct {
	// Action is Resource Manager's name for it, Role a role that has it, Scope its scope.
	Action, Role, Scope string
	Later               bool // needed only to undo the enrolment
}

// Wanting describes the situation that determines the rights needed to enrol a machine.
type Wanting struct {
	Located   bool // Azure need not be asked for the API server's address
	Connected bool // the machine was already connected, but not by us
}

func (a Arc) needs(w Wanting) []Gap {
	group := fmt.Sprintf("/subscriptions/%s/resourceGroups/%s", a.Config.SubscriptionID,
		a.Config.Arc.ResourceGroup)
	cluster := a.Config.TargetCluster.ResourceID
	const machines = "Microsoft.HybridCompute/machines/"
	const assignments = "Microsoft.Authorization/roleAssignments/"
	list := []Gap{{machines + "read", onboarding, group, false}}
	if !w.Connected {
		list = append(list, Gap{machines + "write", onboarding, group, false},
			Gap{machines + "delete", administrator, group, true})
	}
	if !w.Located {
		const read = "Microsoft.ContainerService/managedClusters/read"
		list = append(list, Gap{read, config.RoleClusterUser, cluster, false})
	}
	if Assigns(a.Config) {
		list = append(list, Gap{assignments + "write", accessAdmin, cluster, false},
			Gap{assignments + "delete", accessAdmin, cluster, true})
	}
	return list
}

// Gaps reads the identity's permissions, and returns the missing ones and its object id.
func (a Arc) Gaps(ctx context.Context, w Wanting) (gaps []Gap, principal string, err error) {
	token, err := a.Credential.GetToken(ctx, policy.TokenRequestOptions{
		Scopes: []string{a.Config.ResourceManagerEndpoint + "/.default"}})
	if err != nil {
		return nil, "", identity.Explain(err, identity.Need{Doing: "get a token for Resource Manager"})
	}
	may := map[string][]*armauthorization.Permission{}
	for _, need := range a.needs(w) {
		if _, asked := may[need.Scope]; !asked {
			if may[need.Scope], err = a.permissions(ctx, need.Scope); err != nil {
				return nil, "", err
			}
		}
		allows := func(p *armauthorization.Permission) bool {
			return p != nil && covered(p.Actions, need.Action) && !covered(p.NotActions, need.Action)
		}
		if !slices.ContainsFunc(may[need.Scope], allows) {
			gaps = append(gaps, need)
		}
	}
	return gaps, identity.ClaimsOf(token.Token).ObjectID, nil
}

// permissions returns an identity's permissions at a scope; none if it may not even list them.
func (a Arc) permissions(
	ctx context.Context, scope string,
) (list []*armauthorization.Permission, err error) {
	id, err := arm.ParseResourceID(scope)
	if err != nil {
		return nil, fmt.Errorf("internal error: %w", err)
	}
	client := client(a, armauthorization.NewPermissionsClient, id.SubscriptionID)
	if kind := id.ResourceType; kind.String() == arm.ResourceGroupResourceType.String() {
		pages := client.NewListForResourceGroupPager(id.ResourceGroupName, nil)
		for err == nil && pages.More() {
			var page armauthorization.PermissionsClientListForResourceGroupResponse
			page, err = pages.NextPage(ctx)
			list = append(list, page.Value...)
		}
	} else {
		pages := client.NewListForResourcePager(id.ResourceGroupName, kind.Namespace, "",
			kind.Types[0], id.Name, nil)
		for err == nil && pages.More() {
			var page armauthorization.PermissionsClientListForResourceResponse
			page, err = pages.NextPage(ctx)
			list = append(list, page.Value...)
		}
	}
	if failed, ok := errors.AsType[*azcore.ResponseError](err); ok &&
		failed.StatusCode == http.StatusForbidden {
		return nil, nil
	}
	return list, identity.Explain(err, identity.Need{Doing: "read what the identity may do at " +
		scope, Scope: scope})
}

// covered reports whether a pattern matches an action: case is ignored, and * matches anything.
func covered(patterns []*string, action string) bool {
	return slices.ContainsFunc(patterns, func(p *string) bool {
		if p == nil {
			return false
		}
		expression := strings.ReplaceAll(regexp.QuoteMeta(*p), `\*`, ".*")
		return regexp.MustCompile("(?i)^" + expression + "$").MatchString(action)
	})
}

// Explain lists missing permissions, with the commands that grant them, one for each role.
func Explain(gaps []Gap, principal string) string {
	var lines []string
	for _, gap := range gaps {
		lines = append(lines, fmt.Sprintf("  %s on %s", gap.Action, gap.Scope))
		if cure := "    " + GrantCommand(principal, gap.Role, gap.Scope); !slices.Contains(lines, cure) {
			lines = append(lines, cure)
		}
	}
	return strings.Join(lines, "\n")
}

// GrantCommand returns the command with which an owner assigns a role to an identity.
func GrantCommand(principal, role, scope string) string {
	return fmt.Sprintf("az role assignment create --assignee %s --role %q --scope %s",
		cmp.Or(principal, "OBJECT-ID"), role, scope)
}
