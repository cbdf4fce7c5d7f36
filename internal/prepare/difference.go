package prepare

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

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
	b, wantMap := want.(map[string]any)
	if isMap && wantMap {
		for _, key := range slices.Sorted(maps.Keys(union(a, b))) {
			fields = append(fields, differences(strings.TrimPrefix(path+"."+key, "."), a[key], b[key])...)
		}
		return fields
	}
	x, isList := is.([]any)
	y, wantList := want.([]any)
	if isList && wantList && len(x) == len(y) {
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

func union(a, b map[string]any) map[string]any {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// longestValue is the max length of a shown value.
const longestValue = 72

// short returns a value as one line.
func short(v any) string {
	if v == nil {
		return ""
	}
	text, ok := v.(string)
	if !ok {
		data, err := json.Marshal(v)
		if err != nil {
			return fmt.Sprint(v)
		}
		text = string(data)
	}
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > longestValue {
		return string(runes[:longestValue]) + "..."
	}
	return text
}
