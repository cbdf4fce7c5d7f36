package azuresim

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// Cluster is a managed cluster.
type Cluster struct {
	ID       string `json:"id"`
	Location string `json:"location"`
	Version  string `json:"version"`
	// Server is the URL of the API server and CA its certificates, as PEM.
	Server string `json:"server"`
	CA     string `json:"ca"`
	// AdminKubeconfig is the kubeconfig that listClusterAdminCredential returns.
	AdminKubeconfig string `json:"adminKubeconfig,omitempty"`
	DNSServiceIP    string `json:"dnsServiceIP,omitempty"`
	// PodCIDRs are the pod networks, at most one per address family; none if the network plugin is not
	// Azure's.
	PodCIDRs []string `json:"podCidrs,omitempty"`
	// Entra reports whether the cluster accepts Entra tokens, and AzureRBAC whether Azure role
	// assignments authorize requests to it.
	Entra                 bool `json:"entra"`
	AzureRBAC             bool `json:"azureRBAC"`
	LocalAccountsDisabled bool `json:"localAccountsDisabled,omitempty"`
	Private               bool `json:"private,omitempty"`
}

// AddCluster adds a cluster or replaces the one with the same id.
func (s *Sim) AddCluster(k Cluster) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.world.Clusters = slices.DeleteFunc(s.world.Clusters,
		func(other Cluster) bool { return arm.Key(other.ID) == arm.Key(k.ID) })
	s.world.Clusters = append(s.world.Clusters, k)
}

// AddSubscription adds a subscription if it does not exist.
func (s *Sim) AddSubscription(sub Subscription) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.world.Subscriptions, sub) {
		s.world.Subscriptions = append(s.world.Subscriptions, sub)
	}
}

// clusters serves Microsoft.ContainerService/managedClusters.
func (s *Sim) clusters(w http.ResponseWriter, c call) *arm.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.world.Clusters,
		func(k Cluster) bool { return arm.Key(k.ID) == arm.Key(c.scope) })
	switch {
	case c.id.Name() == "" && c.Method == http.MethodGet:
		var items []any
		for _, k := range s.world.Clusters {
			if arm.Within(k.ID, strings.TrimSuffix(c.id.Key(),
				"/providers/microsoft.containerservice/managedclusters")) {
				items = append(items, s.cluster(k))
			}
		}
		arm.WriteJSON(w, 200, list(items))
	case c.Method == http.MethodPut:
		return s.putCluster(w, c, at)
	case at < 0 && c.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	case at < 0:
		return notFound(c)
	case c.Method == http.MethodGet:
		arm.WriteJSON(w, 200, s.cluster(s.world.Clusters[at]))
	case c.Method == http.MethodDelete:
		s.world.Clusters = slices.Delete(s.world.Clusters, at, at+1)
		w.Header().Set("Azure-AsyncOperation", s.begin(c))
		w.Header().Set("Location", w.Header().Get("Azure-AsyncOperation"))
		w.WriteHeader(http.StatusAccepted)
	case c.Method == http.MethodPost:
		return s.credential(w, c, s.world.Clusters[at])
	default:
		return notAllowed(w, c, "GET, PUT, DELETE, POST")
	}
	return nil
}

func (s *Sim) cluster(k Cluster) map[string]any {
	id, _ := arm.Parse(k.ID)
	host := strings.TrimSuffix(strings.TrimPrefix(k.Server, "https://"), ":443")
	network := map[string]any{"networkPlugin": "none", "dnsServiceIP": k.DNSServiceIP}
	if len(k.PodCIDRs) > 0 {
		network["podCidr"], network["podCidrs"] = k.PodCIDRs[0], k.PodCIDRs
	}
	properties := map[string]any{
		"provisioningState": "Succeeded", "powerState": map[string]any{"code": "Running"},
		"kubernetesVersion": k.Version, "currentKubernetesVersion": k.Version,
		"dnsPrefix": id.Name(), "fqdn": host, "enableRBAC": true,
		"disableLocalAccounts": k.LocalAccountsDisabled,
		"nodeResourceGroup":    "MC_" + id.ResourceGroup + "_" + id.Name() + "_" + k.Location,
		"networkProfile":       network,
	}
	if k.Private {
		delete(properties, "fqdn")
		properties["privateFQDN"] = host
		properties["apiServerAccessProfile"] = map[string]any{"enablePrivateCluster": true}
	}
	if k.Entra {
		properties["aadProfile"] = map[string]any{"managed": true, "enableAzureRBAC": k.AzureRBAC,
			"tenantID": s.world.TenantID}
	}
	return map[string]any{"id": k.ID, "name": id.Name(),
		"type": "Microsoft.ContainerService/ManagedClusters", "location": k.Location,
		"properties": properties}
}

// putCluster registers a cluster. As in Azure it is a long-running operation; it starts no cluster.
func (s *Sim) putCluster(w http.ResponseWriter, c call, at int) *arm.Error {
	var body struct {
		Location   string `json:"location"`
		Properties struct {
			KubernetesVersion string `json:"kubernetesVersion"`
		} `json:"properties"`
	}
	if err := decode(c, &body); err != nil {
		return err
	}
	k, status := Cluster{ID: c.id.String()}, 201
	if at >= 0 {
		k, status = s.world.Clusters[at], 200
		s.world.Clusters = slices.Delete(s.world.Clusters, at, at+1)
	}
	k.Location, k.Version = body.Location, first(body.Properties.KubernetesVersion, k.Version)
	s.world.Clusters = append(s.world.Clusters, k)
	shown := s.cluster(k)
	shown["properties"].(map[string]any)["provisioningState"] = "Creating"
	w.Header().Set("Azure-AsyncOperation", s.begin(c))
	arm.WriteJSON(w, status, shown)
	return nil
}

// credential serves listClusterAdminCredential and listClusterUserCredential.
func (s *Sim) credential(w http.ResponseWriter, c call, k Cluster) *arm.Error {
	name, text := "clusterUser", userKubeconfig(k)
	switch strings.ToLower(c.id.Action) {
	case "listclusteradmincredential":
		name, text = "clusterAdmin", k.AdminKubeconfig
		if k.LocalAccountsDisabled {
			return arm.Errorf(400, "BadRequest",
				"Getting static credential is not allowed because this cluster is set to "+
					"disable local accounts.")
		}
	case "listclusterusercredential":
		if !k.Entra { // without Entra both are the same
			text = k.AdminKubeconfig
		}
	default:
		return arm.Errorf(404, "InvalidResourceType", "The action '%s' does not exist.",
			c.id.Action)
	}
	arm.WriteJSON(w, 200, map[string]any{"kubeconfigs": []any{map[string]any{"name": name,
		"value": base64.StdEncoding.EncodeToString([]byte(text))}}})
	return nil
}

// userKubeconfig returns the user kubeconfig of a cluster with Entra. It holds no secret and runs
// kubelogin for a token.
func userKubeconfig(k Cluster) string {
	id, _ := arm.Parse(k.ID)
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: %[1]s
  cluster:
    server: %[2]s
    certificate-authority-data: %[3]s
contexts:
- name: %[1]s
  context: {cluster: %[1]s, user: clusterUser_%[1]s}
current-context: %[1]s
users:
- name: clusterUser_%[1]s
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1beta1
      command: kubelogin
      args: [get-token, --server-id, %[4]s]
`, id.Name(), k.Server, base64.StdEncoding.EncodeToString([]byte(k.CA)), AKSServer)
}
