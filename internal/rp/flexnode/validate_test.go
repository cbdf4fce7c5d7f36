package flexnode

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/config"
)

// asked returns the answer to a PUT with a body: code and places; "" if it is accepted.
func asked(t *testing.T, body string) string {
	t.Helper()
	d, secret, err := ReadPut([]byte(body), nodeID)
	problems, _ := errors.AsType[Problems](err)
	if err == nil {
		if sp, _ := principalOf(d.AzureAuth); secret != "" {
			sp.ClientSecret = secret
		}
		_, problems = newWorld(t).decide(d)
	}
	answer := cmp.Or(problems.ARM(), &arm.Error{})
	if err != nil && problems == nil && !errors.As(err, &answer) {
		t.Fatal(err)
	}
	places := []string{answer.Target}
	for _, d := range answer.Details {
		places = append(places, d.Target)
	}
	slices.Sort(places)
	words := strings.Fields(answer.Code + " " + strings.Join(places, " "))
	return strings.Join(words, " ")
}

// Every problem of a request is reported, with its place in the resource.
func TestProblems(t *testing.T) {
	const one, many = "InvalidParameter properties.", "MultipleErrorsOccurred properties."
	p := func(inner string) string { return `{"properties":{` + inner + `}}` }
	principal := func(inner, rest string) string {
		return p(`"azureAuth":{"method":"servicePrincipal","servicePrincipal":{` + inner + `}}` + rest)
	}
	onboarding := func(inner string, azure bool) string {
		return p(`"continuousMonitoring":true,"azureAuth":{"method":"arc","arc":{` +
			`"autoRoleAssignment":true,"onboarding":{` + inner + `}}},"kubernetesAuth":{` +
			`"useAzureAuth":` + fmt.Sprint(azure) + `}`)
	}
	const a = `"clientId":"` + clientA + `"`
	for _, tt := range []struct{ body, want string }{
		{p(``), ""},
		{`{"location":"mars","properties":{}}`, ""}, // az sends one with every resource
		{p(`"network":{}`), ""},
		{p(`"network":{"metadata":"allow"}`), ""},
		{p(`"network":{"no such setting":"check"}`), "InvalidRequestContent"},
		{p(`"versions":{"kubernetes":"1.36.0"}`), one + "versions.kubernetes"},
		{p(`"versions":{"kubernetes":"1.31.0"}`), one + "versions.kubernetes"},
		{p(`"versions":{"kubernetes":"new"}`), one + "versions.kubernetes"},
		{p(`"versions":{"runc":"new"}`), one + "versions.runc"},
		{p(`"nodeConfig":{"maxPods":-1,"labels":{"a b":"c"},"taints":["x"]}`),
			many + `nodeConfig.labels["a b"] properties.nodeConfig.maxPods ` +
				"properties.nodeConfig.taints[0]"},
		{p(`"nodeConfig":{"kubelet":{"imageGCHighThreshold":10,"imageGCLowThreshold":20}}`),
			one + "nodeConfig.kubelet.imageGCLowThreshold"},
		{p(`"continuousMonitoring":true,"kubernetesAuth":{"useAzureAuth":true}`),
			one + "kubernetesAuth.useAzureAuth"},
		{p(`"continuousMonitoring":true`), ""},
		{p(`"continuousMonitoring":false,"monitoring":{"endpoint":"resourceManager"}`), ""},
		{p(`"monitoring":{"endpoint":"resourceManager"},"kubernetesAuth":{"useAzureAuth":true}`),
			many + "kubernetesAuth.useAzureAuth properties.monitoring.endpoint"},
		{p(`"azureAuth":{"method":"magic"}`), one + "azureAuth.method"},
		{p(`"azureAuth":{"method":"arc","managedIdentity":{}}`), one + "azureAuth.managedIdentity"},
		{p(`"azureAuth":{"method":"servicePrincipal"}`), one + "azureAuth.servicePrincipal"},
		{principal(a, ""), one + "azureAuth.servicePrincipal.clientSecret"},
		{principal(`"clientId":"me","clientSecret":"x"`, `,"kubernetesAuth":{"useAzureAuth":true}`),
			one + "azureAuth.servicePrincipal.clientId"},
		{principal(a+`,"clientSecret":"x"`, `,"kubernetesAuth":{"useAzureAuth":true}`), ""},
		{principal(a+`,"clientSecret":"x"`, `,"continuousMonitoring":true`), ""},
		{p(`"azureAuth":{"method":"arc","arc":{"machineResourceId":"/x"}}`),
			one + "azureAuth.arc.machineResourceId"},
		{p(`"azureAuth":{"method":"arc","arc":{"machineResourceId":"/subscriptions/s/resourceGroups/` +
			`g/providers/Microsoft.HybridCompute/machines/m"}}`), one + "azureAuth.arc.machineResourceId"},
		{onboarding(a+`,"clientSecret":"x"`, true), ""},
		{onboarding(a, true), one + "azureAuth.arc.onboarding.clientSecret"},
		{onboarding(`"clientSecret":"x"`, true), one + "azureAuth.arc.onboarding.clientId"},
		{onboarding(a+`,"clientSecret":"x","clientTenant":"mine"`, true),
			one + "azureAuth.arc.onboarding.clientTenant"},
		{onboarding(a+`,"clientSecret":"x"`, false),
			many + "azureAuth.arc.autoRoleAssignment properties.azureAuth.arc.onboarding"},
		{p(`"azureAuth":{"method":"managedIdentity"}`), ""},
		{p(`"azureAuth":{"method":"managedIdentity","registries":["a.azurecr.io"]}`), ""},
		{p(`"azureAuth":{"registries":["a.azurecr.io"]}`), one + "azureAuth.registries"},
		{p(`"continuousMonitoring":true,"monitoring":{"endpoint":"resourceManager"},` +
			`"azureAuth":{"method":"managedIdentity"}`), one + "azureAuth.managedIdentity"},
		{p(`"azureAuth":{"method":"managedIdentity","managedIdentity":{"principalId":"me"}},` +
			`"kubernetesAuth":{"useAzureAuth":true}`), one + "azureAuth.managedIdentity.principalId"},
		{principal(a+`,"clientSecret":"x","principalId":"me"`, ""),
			one + "azureAuth.servicePrincipal.principalId"},
		{onboarding(a+`,"clientSecret":"x","principalId":"`+clientA+`"`, true),
			one + "azureAuth.arc.onboarding.principalId"},
		{`{"name":"other","properties":{}}`, "InvalidParameter"},
		{`{"name":"edge-1","type":"MICROSOFT.ContainerService/managedClusters/flexNodeConfig",` +
			`"properties":{}}`, ""},
		{`{"type":"Microsoft.Compute/disks","properties":{}}`, "InvalidParameter"},
		{p(`"provisioningState":"Failed"`), ""}, // as a GET has shown it
		{p(`"provisioningState":"Magic"`), one + "provisioningState"},
		{p(`"maxPods":1`), "InvalidRequestContent"},
		{`{"properties":{}} {}`, "InvalidRequestContent"},
		{`{"properties":{},"Properties":{}}`, "InvalidRequestContent"},
		{p(`"nodeConfig":{"labels":{"a":"b"},"taints":[{"a":1,"a":2}]}`), "InvalidRequestContent"},
		{`{"properties":` + strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 101),
			"InvalidRequestContent"},
		{`{"properties":` + strings.Repeat(`[`, 100), "InvalidRequestContent"},
		{`{`, "InvalidRequestContent"},
		{`[]`, "InvalidRequestContent"},
		{``, "InvalidRequestContent"}, // it would reset the node to defaults
		{" \n", "InvalidRequestContent"},
	} {
		expect(t, tt.body, asked(t, tt.body), tt.want)
	}
}

// The answer of a GET can be written back in every state; the desired state is the same.
func TestWhatIsShownCanBeWrittenBack(t *testing.T) {
	states := []string{"", api.Creating, api.Updating, api.Deleting, api.Failed, api.Canceled}
	repeat(t, 200, func(g *rand.Rand, w *world) {
		w.put(randomDesired(g))
		n := *w.node
		n.State = pick(g, states...)
		content := Content(w.whole(w.last(), Grants{}))
		shown := Shown(n, w.last(), content, &api.Status{AgentVersion: "v1"})
		d, secret, err := ReadPut(encode(shown), strings.ToUpper(nodeID))
		shows(t, "what is read", "<nil> ", err, secret)
		expect(t, "written back it has changed", w.put(d).Changed, false)
	})
}

func TestDecodeOptional(t *testing.T) {
	var nothing struct{}
	for body, ok := range map[string]bool{
		"": true, "{}": true, " null": true, `{"a":1}`: false, "x": false,
	} {
		expect(t, body+" is read", DecodeOptional([]byte(body), &nothing) == nil, ok)
	}
}

func TestProblemsAreAnError(t *testing.T) {
	p := Problems{{"a", "one"}, {"b", "two"}}
	expect(t, "the error", error(p).Error(), "a: one\nb: two")
	expect(t, "no problem is an error", Problems(nil).ARM() != nil, false)
}

// Configurations are checked with the operator's defaults, and for a cluster that was never
// reached.
func TestCheckDefaults(t *testing.T) {
	expect(t, "problems without defaults", len(CheckDefaults(nil)), 0)
	bad := object{"artifacts": object{"mirror": "http://plain.example"}, "nonsense": true}
	expect(t, "problems", len(CheckDefaults(bad)), 2)
	for _, wrong := range []object{
		{"networking": object{"dnsServiceIp": "10.1.0.10"}}, {"networking": "x"},
		{"components": object{"kubelet": "1.34.4"}},
		{"agent": object{"enableDriftDetectionAndRemediation": "true"}},
		{"components": object{"runc": "1.4.0"}, "runc": object{"version": "1.4.1"}},
	} {
		expect(t, fmt.Sprintf("problems of %v", wrong), len(CheckDefaults(wrong)), 1)
	}
	expect(t, "problems of a proxy without a password",
		len(CheckDefaults(object{"proxy": object{"https": "http://p.example:3128"}})), 0)
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
			expect(t, at, slices.ContainsFunc(CheckDefaults(defaults), holds), true)
		}
	})
	expect(t, "few settings hold secrets", found < 4, false)
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

func TestShapes(t *testing.T) {
	for _, body := range []string{
		`{}`, ` {"a": [], "b": {"a": "A"}, "c": [{"a": 1}, {"a": -2.5}, null, true]} `,
		`{"properties":{"nodeConfig":{"labels":{"site.example/hall":"<3>","x":"\u00e4ö","X":""}}}}`,
		`{"a":123456789012345678}`,
	} {
		var into any
		expect(t, body, Decode([]byte(body), &into), nil)
	}
	for _, body := range []string{
		``, ` `, `x`, `{`, `{}{}`, `{} x`, `{"a":1,}`, `{"a":{"b":1,"c":[],"b":2}}`,
		`[{"b":1,"b":[]},{"c":2}]`, `{"a\u0062":1,"ab":2}`, `{"a":1e999}`, `{"a":01}`, `{1:2}`,
		"{\"a\":\"\x01\"}", strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001),
		`[` + strings.Repeat(`{"a":`, 10_000) + `1` + strings.Repeat(`}`, 10_000) + `]`,
	} {
		var into any
		expect(t, Cut(body, 100)+" is taken", Decode([]byte(body), &into) == nil, false)
	}
	// A newer agent's unknown members, too, must not be nested endlessly or given twice.
	for _, body := range []string{
		`{"k":1,"K":2}`, `{"K":1,"\u212a":2}`, `{"ö":1,"Ö":2}`, `{"new":1,"new":2}`,
		`{"new":{"b":1,"b":2}}`,
		`{"new":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`,
	} {
		var into struct{ K, Ö int }
		expect(t, Cut(body, 100)+" is taken", DecodeLenient([]byte(body), &into) == nil, false)
	}
}

// A node cannot have the name of its cluster's API server or of an AKS Node: 400.
func TestNamesOfTheAPIServer(t *testing.T) {
	for name, refused := range map[string]bool{
		"kubernetes": true, "Kubernetes.Default": true, "kubernetes.default.svc": true,
		"kubernetes.default.svc.cluster.local": true, "kubernetes.default.svc.site.example": true,
		"localhost": true, "a.localhost": true, "factory.example": true, "Moved.example": true,
		"kubernetes-1": false, "edge.factory.example": false, "kubernetes.defaults": false,
		"my.kubernetes": false, "AKS-pool1-0": true, "aksnpwin": true, "my-aks": false,
	} {
		w := newWorld(t)
		w.parent.Cluster.Properties.ServerURL = "https://moved.example:443/"
		_, problems := w.asks(Put{ID: path.Join(path.Dir(nodeID), name), NewUID: "u", At: w.now})
		e := cmp.Or(problems.ARM(), &arm.Error{})
		shows(t, name, map[bool]string{true: "400 name", false: "0 "}[refused], e.Status, e.Target)
	}
	var unknown Parent // nothing is known of the cluster yet
	expect(t, "problems then", checkName(nodeID, unknown), nil)
}
