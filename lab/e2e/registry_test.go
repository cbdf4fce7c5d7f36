package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/lab"
)

// A pod whose image is in a registry that requires the node's identity starts once the identity may
// pull; before, its event and doctor report that it may not. containerd pulls with kubelet's
// credential.
func privateImages(t *testing.T) {
	t.Parallel()
	m := bareMachine(t, "registry-1")
	const client, object, secret = "aaaaaaaa-0000-0000-0000-000000000083",
		"bbbbbbbb-0000-0000-0000-000000000083", "canary-of-registry"
	azure(t, http.MethodPut, "/applications", azuresim.Application{ClientID: client, ObjectID: object,
		Secrets: []azuresim.Secret{{Value: secret}}})
	assign(t, object, clusterUser, clusterAdmin)
	host := strings.TrimPrefix(lab.AzureURL, "https://")
	writeIn(t, m, "/etc/containerd/certs.d/"+strings.Replace(host, ":", "_", 1)+"_/hosts.toml",
		"server = \""+lab.AzureURL+"\"\n") // not the mirror of all other registries
	configureAs(t, m, lab.Newest, "servicePrincipal", func(c map[string]any) {
		section := c["azure"].(map[string]any)
		section["servicePrincipal"] = map[string]any{"clientId": client, "clientSecret": secret}
		section["registries"] = []string{host}
	})
	must(t, m, "bootstrap")

	image := host + "/flexlab/hello:1"
	pod := `apiVersion: v1
kind: Pod
metadata: {name: private}
spec:
  nodeName: registry-1
  terminationGracePeriodSeconds: 1
  containers: [{name: hello, image: "` + image + `"}]
`
	if _, err := bench.Kubectl(t.Context(), pod, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an event of the pod with the registry's refusal", func() bool {
		events, err := bench.Kubectl(t.Context(), "", "get", "events", "--field-selector",
			"involvedObject.name=private,reason=Failed", "-o", "jsonpath={.items[*].message}")
		return err == nil && strings.Contains(events, image) &&
			strings.Contains(events, "401 Unauthorized")
	})
	out, code := flex(t, m, "doctor", "--only", "RegistriesAllow")
	if code != 2 || !strings.Contains(out, "--role AcrPull --assignee "+object) {
		t.Errorf("doctor: exit code %d\n%s", code, out)
	}

	azure(t, http.MethodPut, "/assignments", azuresim.Assignment{
		Scope: lab.RegistryID, RoleID: azuresim.RoleAcrPull, PrincipalID: object})
	if _, err := bench.StartPod(t.Context(), "private", pod); err != nil {
		t.Fatal(err)
	}
	if out, code := flex(t, m, "doctor", "--only", "RegistriesAllow"); code != 0 {
		t.Errorf("doctor: exit code %d\n%s", code, out)
	}
	writeIn(t, m, "/root/request.json", `{"kind": "CredentialProviderRequest", "apiVersion": `+
		`"credentialprovider.kubelet.k8s.io/v1", "image": "`+image+`"}`)
	runScript(t, m, "registry.txtar")
	if log := output(t, m, "journalctl", "-u", "kubelet", "-o", "cat"); strings.Contains(log, secret) {
		t.Error("kubelet has logged the secret")
	}
}
