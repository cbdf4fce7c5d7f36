package flexnode

import (
	"net/url"
	"slices"
	"strings"
)

// IsAPIServerName reports whether clients of a cluster reach its API server by a name: the host of
// a URL of it, a name of its Service default/kubernetes under any domain, or one of the local host.
func IsAPIServerName(name string, urls ...string) bool {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || name == "kubernetes" ||
		strings.HasPrefix(name+".", "kubernetes.default.") ||
		slices.ContainsFunc(urls, func(text string) bool {
			u, err := url.Parse(text)
			return err == nil && u.Hostname() != "" &&
				strings.TrimSuffix(strings.ToLower(u.Hostname()), ".") == name
		})
}

// checkName refuses the name of a node whose serving certificate would be taken for the API
// server's, and names that AKS gives to its own Nodes, which the provider may not change.
func checkName(id string, parent Parent) Problems {
	urls := []string{parent.Cluster.Properties.ServerURL, parent.serverURL()}
	name := baseName(id)
	if strings.HasPrefix(strings.ToLower(name), "aks") {
		return Problems{{"name", "A node cannot be called '" + shorten(name) + "': names that begin " +
			"with aks are of Nodes that AKS manages. Use another name."}}
	}
	if IsAPIServerName(name, urls...) {
		return Problems{{"name", "A node cannot be called '" + shorten(name) + "': clients of the " +
			"cluster reach the API server or themselves by that name. Use another name."}}
	}
	return nil
}
