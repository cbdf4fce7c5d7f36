package arm

import (
	"slices"
	"strings"
)

// Within reports whether an id is a scope or lies below it; / is all.
func Within(id, scope string) bool {
	id, scope = Key(id), Key(scope)
	return id == scope || scope == "/" || strings.HasPrefix(id, scope+"/")
}

// Allows reports whether one of a role's patterns is for an action: case is ignored, and * stands
// for anything.
func Allows(patterns []string, action string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, action) })
}

func matches(pattern, action string) bool {
	parts := strings.Split(Fold(pattern), "*")
	rest, found := strings.CutPrefix(Fold(action), parts[0])
	if len(parts) == 1 {
		return found && rest == ""
	}
	last := len(parts) - 1
	for _, part := range parts[1:last] {
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return found && strings.HasSuffix(rest, parts[last])
}
