package rp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/config"
	store "github.com/Azure/AKSFlexNode/internal/rp/oldstore"
)

// problem is one thing that is wrong with a request: a JSON path and what to do.
type problem struct{ target, message string }

// refuse is the answer to a request with problems: all of them, each with its place (RPC, error details).
func refuse(problems []problem) error {
	if len(problems) == 0 {
		return nil
	}
	var details []arm.Error
	for _, p := range problems {
		details = append(details, arm.Error{Code: "InvalidParameter", Target: p.target, Message: p.message})
	}
	if len(details) == 1 {
		one := details[0]
		one.Status = 400
		return &one
	}
	e := arm.Errorf(400, "MultipleErrorsOccurred", "The request has %d problems; see the details.", len(details))
	e.Details = details
	return e
}

// maxDepth bounds how deeply a body may be nested; ours needs five.
const maxDepth = 32

// decode reads a JSON body without unknown members. An empty one is {}.
func decode(body []byte, into any) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	bad := func(err error) error {
		return arm.Errorf(400, "InvalidRequestContent", "The request content was invalid and could not be deserialized: '%s'.", strings.TrimPrefix(err.Error(), "json: "))
	}
	if err := checkShape(body); err != nil {
		return bad(err)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return bad(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return bad(errors.New("there is something behind the document"))
	}
	return nil
}

// checkShape refuses what encoding/json would silently take: nesting without end, and a name given twice in one object.
func checkShape(body []byte) error {
	d := json.NewDecoder(bytes.NewReader(body))
	var names []map[string]bool // of the open objects; nil for a list
	isName := false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch t := token.(type) {
		case json.Delim:
			switch t {
			case '{':
				names, isName = append(names, map[string]bool{}), true
			case '[':
				names, isName = append(names, nil), false
			default:
				names = names[:len(names)-1]
				isName = len(names) > 0 && names[len(names)-1] != nil
			}
			if len(names) > maxDepth {
				return fmt.Errorf("it is nested deeper than %d", maxDepth)
			}
			continue
		case string:
			if isName {
				object := names[len(names)-1]
				if key := strings.ToLower(t); object[key] {
					return fmt.Errorf("the name %q is given twice", t)
				} else {
					object[key] = true
				}
				isName = false
				continue
			}
		}
		isName = len(names) > 0 && names[len(names)-1] != nil
	}
}

const guid = `[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`

func matches(pattern, s string) bool {
	return regexp.MustCompile(`\A(?:` + pattern + `)\z`).MatchString(s)
}

// complete fills in what can be written in two ways, and defaults.
func complete(d *api.Desired) {
	if d.AzureAuth.Method == "" {
		d.AzureAuth.Method = api.BootstrapToken
	}
	if d.AzureAuth.Method == api.ManagedIdentity && d.AzureAuth.ManagedIdentity == nil {
		d.AzureAuth.ManagedIdentity = &api.ManagedIdentityAuth{}
	}
	if d.AzureAuth.Method == api.Arc && d.AzureAuth.Arc == nil {
		d.AzureAuth.Arc = &api.ArcAuth{}
	}
}

// checkAuth looks at what the agent's own rules cannot see: how the methods go together.
func checkAuth(d api.Desired) []problem {
	var problems []problem
	add := func(target, format string, args ...any) {
		problems = append(problems, problem{"properties." + target, fmt.Sprintf(format, args...)})
	}
	auth := d.AzureAuth
	methods := []string{api.BootstrapToken, api.ServicePrincipal, api.ManagedIdentity, api.Arc}
	if !slices.Contains(methods, auth.Method) {
		add("azureAuth.method", "The method '%s' is not one of %s.", auth.Method, strings.Join(methods, ", "))
		return problems
	}
	for _, section := range []struct {
		method string
		given  bool
	}{{api.ServicePrincipal, auth.ServicePrincipal != nil}, {api.ManagedIdentity, auth.ManagedIdentity != nil}, {api.Arc, auth.Arc != nil}} {
		if section.given && section.method != auth.Method {
			add("azureAuth."+section.method, "This section is for the method %s, and the method is %s.", section.method, auth.Method)
		}
	}
	if auth.Method == api.ServicePrincipal && auth.ServicePrincipal == nil {
		add("azureAuth.servicePrincipal", "The method servicePrincipal needs this section, with clientId and clientSecret.")
	}
	const none = "needs an identity in Azure, which the method bootstrapToken is not: choose servicePrincipal, managedIdentity or arc"
	if d.ContinuousMonitoring && auth.Method == api.BootstrapToken {
		add("continuousMonitoring", "Continuous monitoring %s.", none)
	}
	if d.KubernetesAuth.UseAzureAuth && auth.Method == api.BootstrapToken {
		add("kubernetesAuth.useAzureAuth", "Joining with an Azure identity %s.", none)
	}
	if mi := auth.ManagedIdentity; mi != nil {
		if mi.PrincipalID != "" && !matches(guid, mi.PrincipalID) {
			add("azureAuth.managedIdentity.principalId", "The principal id '%s' is not a GUID.", mi.PrincipalID)
		}
		if d.ContinuousMonitoring && mi.ClientID == "" && mi.PrincipalID == "" {
			add("azureAuth.managedIdentity", "Continuous monitoring needs the clientId of a user-assigned identity or the principalId of the system-assigned one: by it the node is known when it polls.")
		}
	}
	if arc := auth.Arc; arc != nil && arc.MachineResourceID != "" && !isMachine(arc.MachineResourceID) {
		add("azureAuth.arc.machineResourceId", "'%s' is not the id of a Microsoft.HybridCompute/machines resource.", arc.MachineResourceID)
	}
	return problems
}

func isMachine(id string) bool {
	parsed, err := arm.Parse(id)
	return err == nil && strings.EqualFold(parsed.Type(), "Microsoft.HybridCompute/machines") && parsed.Name() != "" && parsed.ResourceGroup != ""
}

// checkNode has the agent's own rules look at the configuration that the node would get, so that what is accepted here is accepted
// there. Problems are told in terms of the resource.
func checkNode(n store.Node, f store.Facts, defaults object, g grants) []problem {
	if f.ServerURL == "" { // not known yet; anything valid stands for it
		f.ServerURL, f.CACertData, f.DNSServiceIP = "https://unknown.invalid", base64.StdEncoding.EncodeToString(placeholderCA), "10.0.0.10"
	}
	if f.TenantID == "" {
		f.TenantID = "00000000-0000-0000-0000-000000000000"
	}
	if n.Resolved.Versions.Kubernetes == "" {
		n.Resolved.Versions.Kubernetes = "1.34.4"
	}
	if !n.Desired.KubernetesAuth.UseAzureAuth {
		g.Token = "abcdef.0123456789abcdef"
	}
	text, err := json.Marshal(render(n, f, defaults, g))
	if err != nil {
		return []problem{{"properties", "internal error: " + err.Error()}}
	}
	_, _, err = config.Parse(text, config.Host{HostName: "host", Arch: "amd64"})
	found, ok := errors.AsType[config.Problems](err)
	if err != nil && !ok {
		return []problem{{"properties", err.Error()}}
	}
	var problems []problem
	for _, p := range found {
		message := p.Message
		if p.Value != "" {
			message = p.Value + " is not allowed: " + message
		}
		problems = append(problems, problem{place(p.Path), message})
	}
	return problems
}

// place translates a path of the agent's configuration into one of the resource.
func place(path string) string {
	for _, t := range []struct{ config, resource string }{
		{"agent.nodeName", "name"},
		{"node", "properties.nodeConfig"},
		{"azure.servicePrincipal.tenantId", "properties.azureAuth.servicePrincipal.clientTenant"},
		{"azure", "properties.azureAuth"},
		{"kubernetes.version", "properties.versions.kubernetes"}, {"containerd.version", "properties.versions.containerd"},
		{"runc.version", "properties.versions.runc"}, {"cni.version", "properties.versions.cni"}, {"npd.version", "properties.versions.npd"},
	} {
		if rest, ok := strings.CutPrefix(path, t.config); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return t.resource + rest
		}
	}
	return "properties"
}

// CheckDefaults looks whether a node's configuration would be valid with what an operator gives every node.
func CheckDefaults(defaults map[string]any) []string {
	const id = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/g/providers/" + clusterType + "/c/flexNodeConfig/n"
	n := store.Node{ID: id, Resolved: store.Resolved{Versions: components()}}
	complete(&n.Desired)
	var problems []string
	for _, p := range checkNode(n, store.Facts{Location: "x"}, defaults, grants{}) {
		problems = append(problems, p.message)
	}
	return problems
}
