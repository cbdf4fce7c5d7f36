// Package prepare makes a cluster ready for flex nodes, and undoes that: it applies roles,
// admission policies and kube-proxy with the rights of the caller, and reports what an operator of
// the cluster or of its network still has to do.
package prepare

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/Azure/AKSFlexNode/internal/release"
	"github.com/Azure/AKSFlexNode/manifests"
)

// ProviderUser is the resource provider's default user name in a cluster.
const ProviderUser = "flexnode-rp"

// Options select the objects of a prepared cluster.
type Options struct {
	Provider string // the resource provider's user name; "" omits its roles
	// Identities is the object id of the Entra group of the machines that join with an identity;
	// "" for none.
	Identities string
	// Leave lets nodes delete their own Node, for clusters without a provider that does so.
	Leave     bool
	KubeProxy string // "yes", "no" or "auto": if nothing else implements Services on flex nodes
	// PodInterfaces is the prefix of the names of pod interfaces, if flex nodes use a network plugin
	// other than the agent's own bridge.
	PodInterfaces string
	Server        string // the API server's address for machines; "" for the one in the kubeconfig
}

// The min versions of Kubernetes for some objects.
var (
	confining  = version.MustParseGeneric("1.30") // ValidatingAdmissionPolicy
	revoking   = version.MustParseGeneric("1.32") // credential ids of certificates
	nftProxies = version.MustParseGeneric("1.33") // kube-proxy in nftables mode
)

var (
	userName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9@:._-]*$`)
	interfaces = regexp.MustCompile(`^[a-z][a-z0-9_.-]{0,14}$`)
)

// Check returns an error for invalid options.
func (o Options) Check() error {
	switch {
	case o.Provider != "" && !userName.MatchString(o.Provider):
		return fmt.Errorf("cannot use the provider %q: it is not the name of a user", o.Provider)
	case o.Identities != "" && !userName.MatchString(o.Identities):
		return fmt.Errorf("cannot use the group %q: it is not an object id", o.Identities)
	case o.PodInterfaces != "" && !interfaces.MatchString(o.PodInterfaces):
		return fmt.Errorf("cannot use %q: it does not begin the name of an interface",
			o.PodInterfaces)
	case !slices.Contains([]string{"auto", "yes", "no"}, o.KubeProxy):
		return fmt.Errorf("cannot use kube-proxy %q: it is auto, yes or no", o.KubeProxy)
	}
	if o.Server == "" {
		return nil
	}
	_, err := address(o.Server)
	return err
}

// address returns the address of an API server in the form for kube-proxy.
func address(server string) (string, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" {
		return "", fmt.Errorf("cannot use the API server's address %q: it is not an https URL", server)
	}
	host := u.Hostname()
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() {
		host = "[" + host + "]"
	}
	return "https://" + host + ":" + cmp.Or(u.Port(), "443"), nil
}

// desired returns the wanted objects of a cluster, in the order of their application.
func (o Options) desired(c facts, proxy bool) []*unstructured.Unstructured {
	list := objects(manifests.Text("rbac.yaml"))
	if o.Leave {
		list = append(list, objects(manifests.Text("rbac-leave.yaml"))...)
	}
	if o.Provider != "" {
		text := strings.NewReplacer(`kind: User, name: "flexnode-rp"`,
			`kind: User, name: "`+o.Provider+`"`, `["flexnode-rp", "system:`,
			`["`+o.Provider+`", "system:`).Replace(manifests.Text("rbac-provider.yaml"))
		list = append(list, slices.DeleteFunc(objects(text), c.tooNew)...)
	}
	if o.Identities != "" {
		text := strings.ReplaceAll(manifests.Text("rbac-identity.yaml"), "GROUP-OBJECT-ID", o.Identities)
		found := objects(text)
		if o.Provider != "" { // the provider approves the first certificate of an identity itself
			found = found[:1]
		}
		list = append(list, found...)
	}
	if !proxy {
		return list
	}
	replaced := []string{"API-SERVER", c.server, "KUBERNETES-VERSION", c.proxyVersion()}
	if o.PodInterfaces != "" {
		replaced = append(replaced, "detectLocalMode: BridgeInterface",
			"detectLocalMode: InterfaceNamePrefix", "detectLocal: {bridgeInterface: cni0}",
			"detectLocal: {interfaceNamePrefix: "+o.PodInterfaces+"}")
	}
	text := strings.NewReplacer(replaced...).Replace(manifests.Text("kube-proxy.yaml"))
	return append(list, objects(text)...)
}

func (c facts) tooNew(o *unstructured.Unstructured) bool {
	if o.GroupVersionKind().Group != "admissionregistration.k8s.io" {
		return false
	}
	if o.GetName() == revoked {
		return c.version.LessThan(revoking)
	}
	return c.version.LessThan(confining)
}

// longTerm is the lowest patch version of AKS's long-term support, which has no images upstream.
const longTerm = 100

// proxyVersion returns the version of kube-proxy: the cluster's, or the newest known one before it.
func (c facts) proxyVersion() string {
	own := plain(c.version)
	if known, err := release.KubernetesFor(own); c.version.Patch() >= longTerm && err == nil {
		return known
	}
	return own
}

// plain returns x.y.z of a version.
func plain(v *version.Version) string {
	return fmt.Sprintf("%d.%d.%d", v.Major(), v.Minor(), v.Patch())
}

func objects(manifest string) (list []*unstructured.Unstructured) {
	for d := yaml.NewYAMLToJSONDecoder(bytes.NewReader([]byte(manifest))); ; {
		var object map[string]any
		err := d.Decode(&object)
		switch {
		case errors.Is(err, io.EOF):
			return list
		case err != nil:
			panic(err) // the manifest is embedded
		case object != nil:
			list = append(list, &unstructured.Unstructured{Object: object})
		}
	}
}
