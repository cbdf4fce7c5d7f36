package azuresim

import (
	"regexp"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

const managementGroups = "/providers/microsoft.management/managementgroups/"

// within reports whether an id is the scope or lies below it. A subscription lies below its
// management groups.
func (s *Sim) within(id, scope string) bool {
	if arm.Within(id, scope) {
		return true
	}
	name, isGroup := strings.CutPrefix(arm.Key(scope), managementGroups)
	if !isGroup {
		return false
	}
	for _, above := range s.groupsAbove(arm.Key(id)) {
		if above == name {
			return true
		}
	}
	return false
}

// groupsAbove returns the names of the management groups that contain an id, in lower case.
func (s *Sim) groupsAbove(key string) []string {
	var above []string
	next := ""
	if name, isGroup := strings.CutPrefix(key, managementGroups); isGroup {
		next = name
	} else if rest, ok := strings.CutPrefix(key, "/subscriptions/"); ok {
		subscription, _, _ := strings.Cut(rest, "/")
		for _, g := range s.world.ManagementGroups {
			for _, has := range g.Subscriptions {
				if strings.EqualFold(has, subscription) {
					next = strings.ToLower(g.Name)
				}
			}
		}
	}
	for next != "" && len(above) <= len(s.world.ManagementGroups) {
		above = append(above, next)
		parent := ""
		for _, g := range s.world.ManagementGroups {
			if strings.EqualFold(g.Name, next) {
				parent = strings.ToLower(g.Parent)
			}
		}
		next = parent
	}
	return above
}

// identities returns the ids of a principal and of the groups that contain it, directly or through
// other groups, in lower case.
func (s *Sim) identities(principal string) map[string]bool {
	ids := map[string]bool{strings.ToLower(principal): true}
	for _, a := range s.world.Applications {
		for _, group := range a.Groups {
			if strings.EqualFold(a.ObjectID, principal) {
				ids[strings.ToLower(group)] = true
			}
		}
	}
	for more := true; more; {
		more = false
		for _, g := range s.world.Groups {
			id := strings.ToLower(g.ObjectID)
			for _, member := range g.Members {
				if ids[strings.ToLower(member)] && !ids[id] {
					ids[id], more = true, true
				}
			}
		}
	}
	return ids
}

// filter selects the assignments that a list returns.
type filter struct {
	ids     map[string]bool // of principals; nil means all
	atScope bool
}

func (f filter) has(principal string) bool {
	return f.ids == nil || f.ids[strings.ToLower(principal)]
}

var (
	principalFilter = regexp.MustCompile(`(?i)principalId eq '([^']*)'`)
	assignedFilter  = regexp.MustCompile(`(?i)assignedTo\('([^']*)'\)`)
	atScope         = regexp.MustCompile(`(?i)atScope\(\)`)
)

// filter parses $filter: assignedTo includes the groups of a principal, principalId does not.
func (s *Sim) filter(c call) filter {
	text := c.URL.Query().Get("$filter")
	f := filter{atScope: atScope.MatchString(text)}
	if m := principalFilter.FindStringSubmatch(text); m != nil {
		f.ids = map[string]bool{strings.ToLower(m[1]): true}
	}
	if m := assignedFilter.FindStringSubmatch(text); m != nil {
		f.ids = s.identities(m[1])
	}
	return f
}

// listed reports whether a list at one scope includes an assignment at another.
func (s *Sim) listed(at, scope string, f filter) bool {
	return s.within(at, scope) || s.within(scope, at) && !f.atScope
}
