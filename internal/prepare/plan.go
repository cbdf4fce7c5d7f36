package prepare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"

	"github.com/Azure/AKSFlexNode/manifests"
)

// The actions on an object.
const (
	Create    = "create"
	Update    = "update"
	Unchanged = "unchanged"
	Delete    = "delete"
	Left      = "left"     // means that another program manages the object
	Conflict  = "conflict" // means that others have set fields of the object to other values
)

const (
	fieldManager = "flexnode-rp-cluster-prepare" // the field manager of applied fields
	// managedBy labels the objects added here: no others are ever deleted.
	managedBy = "app.kubernetes.io/managed-by"
	owner     = "flexnode-rp"
	// revoked is the name of the ConfigMap with the revoked machines, which is kept, and of the policy
	// that denies them access.
	revoked = "flexnode-revoked"
)

// Change is the action planned for an object, with the fields that it changes.
type Change struct {
	Action    string  `json:"action"`
	Kind      string  `json:"kind"`
	Namespace string  `json:"namespace,omitempty"`
	Name      string  `json:"name"`
	Fields    []Field `json:"fields,omitempty"`
	Manager   string  `json:"manager,omitempty"` // the program that manages a Left object

	object *unstructured.Unstructured
}

// Field is a changed value. In a conflict, Is names its owner.
type Field struct {
	Path string `json:"path"`
	Is   string `json:"is,omitempty"`
	Want string `json:"want,omitempty"`
}

func (c Change) changes() bool {
	return slices.Contains([]string{Create, Update, Delete}, c.Action)
}

func resource(c dynamic.Interface, o *unstructured.Unstructured) dynamic.ResourceInterface {
	plural, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	return c.Resource(plural).Namespace(o.GetNamespace())
}

// plan compares the cluster with the desired state. It changes nothing: the API server applies each
// object as a dry run.
func (c *Cluster) plan(
	ctx context.Context, desired []*unstructured.Unstructured, force bool,
) ([]Change, error) {
	var changes []Change
	for _, o := range desired {
		change, err := c.compare(ctx, o, force)
		if err != nil {
			return nil, fmt.Errorf("cannot compare %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		changes = append(changes, change)
	}
	former, err := c.former(ctx, desired)
	return append(changes, former...), err
}

// compare returns the change of an object. An unmarked existing object gets no mark: it stays when
// everything added here is removed.
func (c *Cluster) compare(
	ctx context.Context, o *unstructured.Unstructured, force bool,
) (Change, error) {
	change := Change{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName(), object: o}
	live, err := resource(c.objects, o).Get(ctx, o.GetName(), metav1.GetOptions{})
	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		return change, err
	}
	by := owner
	if !absent {
		by = live.GetLabels()[managedBy]
	}
	switch by {
	case "": // it existed before
	case owner:
		_ = unstructured.SetNestedField(o.Object, owner, "metadata", "labels", managedBy) // as embedded
	default:
		change.Action, change.Manager = Left, by
		return change, nil
	}
	next, err := c.apply(ctx, o, force, metav1.DryRunAll)
	if apierrors.IsConflict(err) {
		change.Action, change.Fields = Conflict, conflicts(err)
		return change, nil
	}
	if err != nil {
		return change, err
	}
	if absent {
		change.Action = Create
		return change, nil
	}
	change.Action, change.Fields = Update, differences("", content(live), content(next))
	if len(change.Fields) == 0 {
		change.Action = Unchanged
	}
	return change, nil
}

func (c *Cluster) apply(
	ctx context.Context, o *unstructured.Unstructured, force bool, dryRun ...string,
) (*unstructured.Unstructured, error) {
	return resource(c.objects, o).Apply(ctx, o.GetName(), o, metav1.ApplyOptions{
		FieldManager: fieldManager, Force: force, DryRun: dryRun})
}

// conflicts returns the fields set by others, and by whom (metav1.CauseTypeFieldManagerConflict).
func conflicts(err error) (fields []Field) {
	var status apierrors.APIStatus // an interface that is no error
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	for _, cause := range status.Status().Details.Causes {
		fields = append(fields, Field{Path: strings.TrimPrefix(cause.Field, "."), Is: cause.Message})
	}
	return fields
}

// former returns deletions of the objects that were added here but are no longer desired.
func (c *Cluster) former(
	ctx context.Context, desired []*unstructured.Unstructured,
) (changes []Change, err error) {
	for _, kind := range kinds() {
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		list, err := c.objects.Resource(plural).List(ctx,
			metav1.ListOptions{LabelSelector: managedBy + "=" + owner})
		if apierrors.IsNotFound(err) { // the cluster is too old for the kind
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot list each %s: %w", kind.Kind, err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			wanted := slices.ContainsFunc(desired, func(d *unstructured.Unstructured) bool {
				return d.GetKind() == kind.Kind && d.GetName() == o.GetName() &&
					d.GetNamespace() == o.GetNamespace()
			})
			if !wanted && !(kind.Kind == "ConfigMap" && o.GetName() == revoked) {
				o.SetGroupVersionKind(kind)
				changes = append(changes, Change{Action: Delete, Kind: kind.Kind,
					Namespace: o.GetNamespace(), Name: o.GetName(), object: o})
			}
		}
	}
	return changes, nil
}

// kinds returns the kinds in all manifests, in the order of deletion: referring objects come first.
func kinds() []schema.GroupVersionKind {
	var referring, others []schema.GroupVersionKind
	for _, name := range []string{"rbac.yaml", "rbac-leave.yaml", "rbac-provider.yaml",
		"kube-proxy.yaml"} {
		for _, o := range objects(manifests.Text(name)) {
			switch kind := o.GroupVersionKind(); {
			case slices.Contains(referring, kind), slices.Contains(others, kind):
			case strings.HasSuffix(kind.Kind, "Binding"), kind.Kind == "DaemonSet":
				referring = append(referring, kind)
			default:
				others = append(others, kind)
			}
		}
	}
	return append(referring, others...)
}

// Apply makes the changes of a report, or none if others have set fields of an object.
func (c *Cluster) Apply(ctx context.Context, r *Report, force bool) error {
	for _, change := range r.Changes {
		if change.Action == Conflict {
			return fmt.Errorf("cannot change %s %s: other managers have set its fields; "+
				"--force-conflicts takes them over", change.Kind, change.Name)
		}
	}
	for _, change := range r.Changes {
		var err error
		switch uid := change.object.GetUID(); change.Action {
		case Create, Update:
			_, err = c.apply(ctx, change.object, force)
		case Delete:
			err = resource(c.objects, change.object).Delete(ctx, change.Name,
				metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
			if apierrors.IsNotFound(err) {
				err = nil
			}
		}
		if err != nil {
			return fmt.Errorf("cannot %s %s %s: %w", change.Action, change.Kind, change.Name, err)
		}
	}
	r.Applied = true
	return nil
}

// content returns an object without the fields that the API server maintains.
func content(o *unstructured.Unstructured) map[string]any {
	object := o.DeepCopy().Object
	delete(object, "status")
	metadata, _ := object["metadata"].(map[string]any)
	for _, name := range []string{"creationTimestamp", "generation", "managedFields",
		"resourceVersion", "uid"} {
		delete(metadata, name)
	}
	return object
}

// differences returns the values that differ between two objects, each with its path.
func differences(path string, is, want any) (fields []Field) {
	a, isMap := is.(map[string]any)
	if b, wantMap := want.(map[string]any); isMap && wantMap {
		for _, key := range sets.List(sets.KeySet(a).Union(sets.KeySet(b))) {
			fields = append(fields, differences(strings.TrimPrefix(path+"."+key, "."), a[key], b[key])...)
		}
		return fields
	}
	x, isList := is.([]any)
	if y, wantList := want.([]any); isList && wantList && len(x) == len(y) {
		for i := range x {
			fields = append(fields, differences(fmt.Sprintf("%s[%d]", path, i), x[i], y[i])...)
		}
		return fields
	}
	if reflect.DeepEqual(is, want) {
		return nil
	}
	is, want = sinceDifference(is, want)
	return []Field{{Path: path, Is: short(is), Want: short(want)}}
}

// sinceDifference returns two texts from the first differing line on.
func sinceDifference(is, want any) (any, any) {
	a, isText := is.(string)
	b, wantText := want.(string)
	for isText && wantText {
		first, restA, more := strings.Cut(a, "\n")
		second, restB, also := strings.Cut(b, "\n")
		if first != second || !more || !also {
			return a, b
		}
		a, b = restA, restB
	}
	return is, want
}

const longestValue = 72 // the max length of a shown value

func short(v any) string {
	if v == nil {
		return ""
	}
	text, ok := v.(string)
	if !ok {
		data, _ := json.Marshal(v) // what was decoded can be encoded
		text = string(data)
	}
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > longestValue {
		return string(runes[:longestValue]) + "..."
	}
	return text
}
