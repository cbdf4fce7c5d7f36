package flexnode

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/config"
)

// asked is the answer to a PUT with a body: code and places, or "" for one that is taken.
func asked(t *testing.T, body string) string {
	t.Helper()
	w := newWorld(t)
	d, secret, err := ReadPut([]byte(body), nodeID)
	if refused := new(arm.Error); errors.As(err, &refused) {
		return strings.TrimSpace(refused.Code + " " + refused.Target)
	}
	problems, ok := errors.AsType[Problems](err)
	if err != nil && !ok {
		t.Fatal(err)
	}
	if err == nil {
		if secret != "" {
			sp, _ := principalOf(d.AzureAuth)
			sp.ClientSecret = secret
		}
		_, problems = w.decide(d)
	}
	answer := problems.ARM()
	if answer == nil {
		return ""
	}
	got := []string{answer.Code}
	if answer.Target != "" {
		got = append(got, answer.Target)
	}
	var places []string
	for _, d := range answer.Details {
		places = append(places, d.Target)
	}
	slices.Sort(places)
	return strings.Join(append(got, places...), " ")
}

// Every problem of a request is reported, with its place in the resource.
func TestProblems(t *testing.T) {
	const one, many = "InvalidParameter ", "MultipleErrorsOccurred "
	principal := func(inner, rest string) string {
		return `{"properties":{"azureAuth":{"method":"servicePrincipal","servicePrincipal":{` +
			inner + `}}` + rest + `}}`
	}
	onboarding := func(inner string, azure bool) string {
		return `{"properties":{"continuousMonitoring":true,"azureAuth":{"method":"arc","arc":{` +
			`"autoRoleAssignment":true,"onboarding":{` + inner + `}}},"kubernetesAuth":{` +
			`"useAzureAuth":` + strconv.FormatBool(azure) + `}}}`
	}
	const a = `"clientId":"` + clientA + `"`
	tests := []struct{ body, want string }{
		{`{"properties":{}}`, ""},
		{`{"location":"mars","properties":{}}`, ""}, // az sends one with every resource
		{`{"properties":{"network":{}}}`, ""},
		{`{"properties":{"network":{"metadata":"allow"}}}`, ""},
		{`{"properties":{"network":{"metadata":"deny"}}}`, one + "properties.network.metadata"},
		{`{"properties":{"network":{"firewall":"check"}}}`, "InvalidRequestContent"},
		{`{"properties":{"versions":{"kubernetes":"1.36.0"}}}`,
			one + "properties.versions.kubernetes"},
		{`{"properties":{"versions":{"kubernetes":"1.31.0"}}}`,
			one + "properties.versions.kubernetes"},
		{`{"properties":{"versions":{"kubernetes":"new"}}}`, one +
			"properties.versions.kubernetes"},
		{`{"properties":{"versions":{"runc":"new"}}}`, one + "properties.versions.runc"},
		{`{"properties":{"nodeConfig":{"maxPods":-1,"labels":{"a b":"c"},"taints":["x"]}}}`,
			many + `properties.nodeConfig.labels["a b"] properties.nodeConfig.maxPods ` +
				"properties.nodeConfig.taints[0]"},
		{`{"properties":{"nodeConfig":{"kubelet":{"imageGCHighThreshold":10,` +
			`"imageGCLowThreshold":20}}}}`,
			one + "properties.nodeConfig.kubelet.imageGCLowThreshold"},
		{`{"properties":{"continuousMonitoring":true,"kubernetesAuth":{"useAzureAuth":true}}}`,
			one + "properties.kubernetesAuth.useAzureAuth"},
		{`{"properties":{"continuousMonitoring":true}}`, ""},
		{`{"properties":{"continuousMonitoring":false,"monitoring":{"endpoint":"resourceManager"}}}`, ""},
		{`{"properties":{"monitoring":{"endpoint":"resourceManager"},` +
			`"kubernetesAuth":{"useAzureAuth":true}}}`,
			many + "properties.kubernetesAuth.useAzureAuth properties.monitoring.endpoint"},
		{`{"properties":{"azureAuth":{"method":"magic"}}}`, one + "properties.azureAuth.method"},
		{`{"properties":{"azureAuth":{"method":"arc","managedIdentity":{}}}}`,
			one + "properties.azureAuth.managedIdentity"},
		{`{"properties":{"azureAuth":{"method":"servicePrincipal"}}}`,
			one + "properties.azureAuth.servicePrincipal"},
		{principal(a, ""), one + "properties.azureAuth.servicePrincipal.clientSecret"},
		{principal(`"clientId":"me","clientSecret":"x"`, `,"kubernetesAuth":{"useAzureAuth":true}`),
			one + "properties.azureAuth.servicePrincipal.clientId"},
		{principal(a+`,"clientSecret":"x"`, `,"kubernetesAuth":{"useAzureAuth":true}`), ""},
		{principal(a+`,"clientSecret":"x"`, `,"continuousMonitoring":true`), ""},
		{`{"properties":{"azureAuth":{"method":"arc","arc":{"machineResourceId":"/x"}}}}`,
			one + "properties.azureAuth.arc.machineResourceId"},
		{`{"properties":{"azureAuth":{"method":"arc","arc":{"machineResourceId":"/subscriptions/` +
			`s/resourceGroups/g/providers/Microsoft.HybridCompute/machines/m"}}}}`,
			one + "properties.azureAuth.arc.machineResourceId"},
		{onboarding(a+`,"clientSecret":"x"`, true), ""},
		{onboarding(a, true), one + "properties.azureAuth.arc.onboarding.clientSecret"},
		{onboarding(`"clientSecret":"x"`, true),
			one + "properties.azureAuth.arc.onboarding.clientId"},
		{onboarding(a+`,"clientSecret":"x","clientTenant":"mine"`, true),
			one + "properties.azureAuth.arc.onboarding.clientTenant"},
		{onboarding(a+`,"clientSecret":"x"`, false), many + "properties.azureAuth.arc." +
			"autoRoleAssignment properties.azureAuth.arc.onboarding"},
		{`{"properties":{"azureAuth":{"method":"managedIdentity"}}}`, ""},
		{`{"properties":{"continuousMonitoring":true,"monitoring":{"endpoint":"resourceManager"},` +
			`"azureAuth":{"method":"managedIdentity"}}}`,
			one + "properties.azureAuth.managedIdentity"},
		{`{"properties":{"azureAuth":{"method":"managedIdentity","managedIdentity":` +
			`{"principalId":"me"}},"kubernetesAuth":{"useAzureAuth":true}}}`,
			one + "properties.azureAuth.managedIdentity.principalId"},
		{principal(a+`,"clientSecret":"x","principalId":"me"`, ""),
			one + "properties.azureAuth.servicePrincipal.principalId"},
		{onboarding(a+`,"clientSecret":"x","principalId":"`+clientA+`"`, true),
			one + "properties.azureAuth.arc.onboarding.principalId"},
		{`{"name":"other","properties":{}}`, "InvalidParameter"},
		{`{"name":"edge-1","type":"MICROSOFT.ContainerService/managedClusters/flexNodeConfig",` +
			`"properties":{}}`, ""},
		{`{"type":"Microsoft.Compute/disks","properties":{}}`, "InvalidParameter"},
		{`{"properties":{"provisioningState":"Failed"}}`, ""}, // as a GET has shown it
		{`{"properties":{"provisioningState":"Magic"}}`, one + "properties.provisioningState"},
		{`{"properties":{"maxPods":1}}`, "InvalidRequestContent"},
		{`{"properties":{}} {}`, "InvalidRequestContent"},
		{`{"properties":{},"Properties":{}}`, "InvalidRequestContent"},
		{`{"properties":{"nodeConfig":{"labels":{"a":"b"},"taints":[{"a":1,"a":2}]}}}`,
			"InvalidRequestContent"},
		{`{"properties":` + strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 101),
			"InvalidRequestContent"},
		{`{"properties":` + strings.Repeat(`[`, 100), "InvalidRequestContent"},
		{`{`, "InvalidRequestContent"},
		{`[]`, "InvalidRequestContent"},
		{``, "InvalidRequestContent"}, // it would reset the node to defaults
		{" \n", "InvalidRequestContent"},
	}
	for _, tt := range tests {
		if got := asked(t, tt.body); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.body, got, tt.want)
		}
	}
}

// What a GET shows can be written back in every state, whatever the provider says in it; the
// desired state is the same.
func TestWhatIsShownCanBeWrittenBack(t *testing.T) {
	g := generator(t)
	states := []string{"", api.Creating, api.Updating, api.Deleting, api.Failed, api.Canceled}
	for range 200 {
		w := newWorld(t)
		w.put(randomDesired(g))
		n := *w.node
		n.State = pick(g, states...)
		config := must(Config(*w.last(), nil, w.parent.FactsLayer, Grants{}))
		shown := Shown(n, w.last(), config, &api.Status{AgentVersion: "v1"})
		d, secret, err := ReadPut(must(json.Marshal(shown)), strings.ToUpper(nodeID))
		if err != nil || secret != "" {
			t.Fatalf("%v, %q", err, secret)
		}
		if got := w.put(d); got.Changed {
			t.Fatalf("written back it changed:\n%s", cmp.Diff(n, got.Node))
		}
	}
}

func TestDecodeOptional(t *testing.T) {
	var nothing struct{}
	for body, ok := range map[string]bool{"": true, "{}": true, `{"a":1}`: false, "x": false} {
		if err := DecodeOptional([]byte(body), &nothing); (err == nil) != ok {
			t.Errorf("%q: %v", body, err)
		}
	}
}

func TestProblemsAreAnError(t *testing.T) {
	p := Problems{{"a", "one"}, {"b", "two"}}
	if got := error(p).Error(); got != "a: one\nb: two" {
		t.Error(got)
	}
	if Problems(nil).ARM() != nil {
		t.Error("no problem is an error")
	}
}

// Configurations are checked with the operator's defaults, and a cluster that was never reached.
func TestCheckDefaults(t *testing.T) {
	if got := CheckDefaults(nil); len(got) != 0 {
		t.Errorf("no defaults: %v", got)
	}
	bad := object{"artifacts": object{"mirror": "http://plain.example"}, "nonsense": true}
	if got := CheckDefaults(bad); len(got) != 2 {
		t.Errorf("%v", got)
	}
	if got := CheckDefaults(object{"proxy": object{"https": "http://p.example:3128"}}); len(got) != 0 {
		t.Errorf("a proxy without a password: %v", got)
	}
	// Every caller who may read a node is shown the defaults.
	found := 0
	eachSecret(reflect.TypeFor[config.Config](), func(path []string) {
		found++
		for _, secret := range []string{"hush.hush", "http://user:pass@proxy.example:3128"} {
			defaults := object{path[len(path)-1]: secret}
			for _, name := range slices.Backward(path[:len(path)-1]) {
				defaults = object{name: defaults}
			}
			at := strings.Join(path, ".")
			holds := func(p string) bool { return strings.HasPrefix(p, at+" holds a secret") }
			if got := CheckDefaults(defaults); !slices.ContainsFunc(got, holds) {
				t.Errorf("%s: %v", at, got)
			}
		}
	})
	if found < 4 {
		t.Errorf("%d settings hold secrets", found)
	}
}

// eachSecret calls see with the path of each setting of type config.Secret.
func eachSecret(at reflect.Type, see func(path []string), above ...string) {
	if at.Kind() == reflect.Pointer {
		at = at.Elem()
	}
	if at == reflect.TypeFor[config.Secret]() {
		see(above)
	}
	if at.Kind() != reflect.Struct {
		return
	}
	for i := range at.NumField() {
		name, _, _ := strings.Cut(at.Field(i).Tag.Get("json"), ",")
		eachSecret(at.Field(i).Type, see, append(slices.Clone(above), name)...)
	}
}
