package azuresim

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/azuresim/template"
)

// whatIf responds with the changes that a deployment would make to the template's resources.
func (s *Sim) whatIf(w http.ResponseWriter, c call) *arm.Error {
	d, format, problem := s.planDeployment(c)
	if problem != nil {
		return problem
	}
	changes := []any{}
	for _, r := range d.plan.Resources {
		change, err := s.change(c, d.plan, r)
		if err != nil {
			return asError(err)
		}
		if strings.EqualFold(format, "ResourceIdOnly") {
			change = map[string]any{"resourceId": r.ID, "changeType": "Deploy"}
		}
		changes = append(changes, change)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Location", s.later(c, d.id, map[string]any{"status": succeeded,
		"properties": map[string]any{"correlationId": d.correlation, "changes": changes}}))
	w.Header().Set("Retry-After", "0")
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// change returns the predicted change of one resource.
func (s *Sim) change(c call, plan *template.Plan, r template.Resource) (map[string]any, error) {
	after, err := plan.Preview(r)
	if err != nil {
		return nil, err
	}
	a := s.send(c.Context(), c, http.MethodGet, versioned(r.ID, r.Version), nil)
	own := map[string]any{"apiVersion": r.Version, "id": r.ID, "name": r.Name, "type": r.Type}
	if a.status == http.StatusNotFound {
		maps.Copy(after, own)
		return map[string]any{"resourceId": r.ID, "changeType": "Create", "after": after}, nil
	}
	if err := a.problem(); err != nil {
		return nil, err
	}
	v, err := template.Decode(a.body.Bytes())
	before, ok := v.(map[string]any)
	if err != nil || !ok {
		return nil, arm.Errorf(500, "InvalidResponse", "'%s' cannot be read.", r.ID)
	}
	delta := differ(before, after, "")
	maps.Copy(after, own)
	maps.Copy(before, own)
	change := map[string]any{"resourceId": r.ID, "changeType": "NoChange", "before": before,
		"after": after}
	if len(delta) > 0 {
		change["changeType"], change["delta"] = "Modify", delta
	}
	return change, nil
}

// differ compares a resource's properties with those in the template, except secrets. An empty
// value equals a missing one.
func differ(before, after map[string]any, path string) []any {
	var delta []any
	for _, name := range slices.Sorted(maps.Keys(after)) {
		now, then := before[name], after[name]
		was, wasObject := now.(map[string]any)
		is, isObject := then.(map[string]any)
		change := map[string]any{"path": path + name, "after": then}
		switch {
		case wasObject && isObject:
			delta = append(delta, differ(was, is, path+name+".")...)
			continue
		case then == template.Masked, reflect.DeepEqual(now, then), now == nil && nothing(then):
			continue
		case now == nil:
			change["propertyChangeType"] = "Create"
		default:
			change["propertyChangeType"], change["before"] = "Modify", now
		}
		delta = append(delta, change)
	}
	return delta
}

// nothing reports whether a value is empty at every level.
func nothing(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		for _, member := range v {
			if !nothing(member) {
				return false
			}
		}
		return true
	}
	return false
}
