package template

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const group = "/subscriptions/22222222-2222-2222-2222-222222222222/resourceGroups/edge"

var here = Place{
	Subscription: map[string]any{"subscriptionId": "22222222-2222-2222-2222-222222222222"},
	ResourceGroup: map[string]any{"id": group, "name": "edge", "location": "lab",
		"tags": map[string]any{}},
	Deployment: map[string]any{"name": "first"},
}

// asked is a Runtime that returns its arguments.
type asked struct{}

func (asked) Reference(id, version string, full bool) (any, error) {
	return map[string]any{"asked": fmt.Sprint(id, " ", version, " ", full)}, nil
}

func (asked) List(action, id, version string, body any) (any, error) {
	encoded, err := json.Marshal(body)
	return map[string]any{"asked": action + " " + id + " " + version + " " + string(encoded)}, err
}

func inEdge() *scope {
	return &scope{place: here, runtime: asked{},
		parameters: map[string]any{"name": "Edge-1", "count": int64(3), "labels": map[string]any{
			"Site": "oslo"}, "list": []any{"a", "b"}, "nothing": nil},
		variables: map[string]any{"full": "[concat(parameters('name'), '!')]",
			"again": "[variables('again')]",
			"asks":  "[reference('x').y]", "object": map[string]any{"n": "[parameters('count')]"}},
	}
}

func TestExpressions(t *testing.T) {
	const aks = "Microsoft.ContainerService/managedClusters"
	for _, tt := range []struct {
		expression string
		want       any
	}{
		{"plain", "plain"},
		{"[[not an expression]", "[not an expression]"},
		{"[open", "[open"},
		{"['it''s']", "it's"},
		{"[ -7 ]", int64(-7)},
		{"[parameters('NAME')]", "Edge-1"},
		{"[variables('full')]", "Edge-1!"},
		{"[variables('object').n]", int64(3)},
		{"[parameters('labels').site]", "oslo"},
		{"[parameters('labels')['Site']]", "oslo"},
		{"[parameters('list')[1]]", "b"},
		{"[concat('a', 1, true())]", "a1True"},
		{"[concat(parameters('list'), createArray('c'))]", []any{"a", "b", "c"}},
		{"[format('{0}/{1}{{}}', 'c', 2)]", "c/2{}"},
		{"[toLower('Ab')]", "ab"},
		{"[TOUPPER('Ab')]", "AB"},
		{"[trim(' a ')]", "a"},
		{"[base64('ab')]", "YWI="},
		{"[replace('a-b-c', '-', '')]", "abc"},
		{"[split('a,b', ',')]", []any{"a", "b"}},
		{"[join(parameters('list'), '+')]", "a+b"},
		{"[startsWith('Edge', 'eD')]", true},
		{"[endsWith('Edge', 'x')]", false},
		{"[string(parameters('labels'))]", `{"Site":"oslo"}`},
		{"[string(5)]", "5"},
		{"[int('12')]", int64(12)},
		{`[json('{"a": [1, null]}')]`, map[string]any{"a": []any{int64(1), nil}}},
		{"[if(equals(parameters('count'), 3), 'three', parameters('missing'))]", "three"},
		{"[and(true(), not(false()))]", true},
		{"[or(false(), false())]", false},
		{"[equals('a', 'A')]", false},
		{"[coalesce(parameters('nothing'), 'x')]", "x"},
		{"[null()]", nil},
		{"[empty('')]", true},
		{"[empty(parameters('labels'))]", false},
		{"[length('øl')]", int64(2)},
		{"[contains('oslo', 'sl')]", true},
		{"[contains(parameters('list'), 'c')]", false},
		{"[contains(parameters('labels'), 'SITE')]", true},
		{"[union(parameters('list'), createArray('b', 'c'))]", []any{"a", "b", "c"}},
		{"[union(createObject('a', createObject('b', 1)), createObject('a', createObject('c', 2)))]",
			map[string]any{"a": map[string]any{"b": int64(1), "c": int64(2)}}},
		{"[resourceGroup().location]", "lab"},
		{"[deployment().name]", "first"},
		{"[subscription().subscriptionId]", "22222222-2222-2222-2222-222222222222"},
		{"[resourceId('" + aks + "/flexNodeConfig', 'c', 'n')]",
			group + "/providers/" + aks + "/c/flexNodeConfig/n"},
		{"[resourceId('other', '" + aks + "', 'c')]", strings.Replace(group, "edge", "other", 1) +
			"/providers/" + aks + "/c"},
		{"[resourceId('S', 'G', '" + aks + "', 'c')]",
			"/subscriptions/S/resourceGroups/G/providers/" + aks + "/c"},
		{"[subscriptionResourceId('Microsoft.Authorization/roleDefinitions', 'r')]",
			strings.TrimSuffix(group, "/resourceGroups/edge") +
				"/providers/Microsoft.Authorization/roleDefinitions/r"},
		{"[extensionResourceId('/a/b', 'Microsoft.Authorization/roleAssignments', 'r')]",
			"/a/b/providers/Microsoft.Authorization/roleAssignments/r"},
		{"[reference('/x').asked]", "/x  false"},
		{"[reference('/x', 'v', 'full').asked]", "/x v true"},
		{"[listConfigUrl('/x', 'v').asked]", "listConfigUrl /x v null"},
		{"[listKeys('/x', 'v', createObject('a', 1))['asked']]", `listKeys /x v {"a":1}`},
	} {
		got, err := inEdge().value(tt.expression)
		if err != nil {
			t.Errorf("%s: %v", tt.expression, err)
		} else if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.expression, diff)
		}
	}
}

func TestExpressionsThatAreRefused(t *testing.T) {
	for _, tt := range []struct{ expression, want string }{
		{"[concat('a']", "expected ',' or ')', and it has ended"},
		{"[concat('a') x]", "expected its end at character 13, not 'x'"},
		{"['a]", "expected a quote"},
		{"[" + strings.Repeat("not(", 10_000) + "]", "Limit: '24576' and actual: '40000'"},
		{"[]", "expected a value"},
		{"[parameters]", "expected '(' after 'parameters'"},
		{"[a().[0]]", "expected a name"},
		{"[a()[0]", "expected ']', and it has ended"},
		{"[99999999999999999999]", "is no integer"},
		{"[uniqueString('a')]", "The template function 'uniqueString' is not valid. The functions"},
		{"[contoso.name('a')]", "The template function 'contoso.name' is not valid"},
		{"[list('/x', 'v')]", "The template function 'list' is not valid"},
		{"[toLower()]", "'toLower': 0 arguments"},
		{"[toLower(1)]", "'toLower' expects its parameter '1' to be of type 'String'. The provided " +
			"value is of type 'Integer'"},
		{"[if('a', 1, 2)]", "'Boolean'"},
		{"[parameters('x')]", "The template parameter 'x' is not found"},
		{"[variables('x')]", "The template variable 'x' is not found"},
		{"[variables('again')]", "refers to itself"},
		{"[variables('asks')]", "The template function 'reference' is not expected at this location"},
		{"[parameters('labels').x]", "property 'x' doesn't exist, available properties are 'Site'"},
		{"[parameters('list')[2]]", "array index '2' is out of bounds"},
		{"[parameters('name').x]", "of a value of type 'String'"},
		{"[format('{0}')]", "is not a pattern for 0 values"},
		{"[format('{0:N}', 1)]", "is not a pattern"},
		{"[int('x')]", "'x' is no integer"},
		{"[json('{')]", "not JSON"},
		{"[resourceId('a', 'b')]", "no fully qualified resource type"},
		{"[resourceId('A/b/c', 'x')]", "requires '2' resource name argument(s)"},
		{"[reference('/x', 'v', 'half')]", "'half' is not 'Full'"},
	} {
		got, err := inEdge().value(tt.expression)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, %v; want %s", tt.expression, got, err, tt.want)
		}
	}
}

// az sends the template verbatim, so the body is not JSON.
func TestJSONWithCommentsAndNamesWithoutQuotes(t *testing.T) {
	const sent = `{"properties": {"mode": "Incremental", template:{ // a comment
  /* another: "quoted" */ $schema : "http://x/*y*/", "a": "two
lines", "b": [true, null, -1.5], "c": "\"//\\"}}}`
	text, err := JSON([]byte(sent))
	if err != nil {
		t.Fatal(err)
	}
	var got any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	want := map[string]any{"properties": map[string]any{"mode": "Incremental",
		"template": map[string]any{"$schema": "http://x/*y*/", "a": "two\nlines",
			"b": []any{true, nil, -1.5}, "c": `"//\`}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, bad := range []string{`{"a`, `{/* a`, `{/`, `{/a`} {
		if text, err := JSON([]byte(bad)); err == nil {
			t.Errorf("%s is read as %s", bad, text)
		}
	}
}

func FuzzExpression(f *testing.F) {
	f.Add("[format('{0}/{1}', parameters('name'), variables('full'))]")
	f.Add("[listConfigUrl(resourceId('a/b', 'c'), 'v').configUrl]")
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = inEdge().value(text) // it ends, and does not panic
		_, _ = JSON([]byte(text))
	})
}
