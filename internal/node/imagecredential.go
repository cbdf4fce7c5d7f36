package node

import (
	"path"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// imageCredentialDir is the directory of kubelet's credential plugin for images. It holds a script
// that runs this program, as the plugin's file must have the name of the provider.
const imageCredentialDir, imageCredentialName = OptDir + "/image-credential", "aks-flex-node"

func (p *part) imageCredentialConfig() string {
	return path.Join(p.config.Paths.Kubernetes.KubeletDir, "image-credential-provider.json")
}

// imageCredentials makes kubelet run this program for a credential before it pulls from a registry
// that requires the node's identity (kubelet.config.k8s.io/v1, CredentialProviderConfig). Kubelet
// reads the configuration at its start, and the script each time.
func imageCredentials(p *part) {
	if len(p.config.Azure.Registries) == 0 {
		return
	}
	config := object{
		"apiVersion": "kubelet.config.k8s.io/v1",
		"kind":       "CredentialProviderConfig",
		"providers": []object{{
			"name":                 imageCredentialName,
			"apiVersion":           "credentialprovider.kubelet.k8s.io/v1",
			"matchImages":          p.config.Azure.Registries,
			"defaultCacheDuration": "30m0s",
		}},
	}
	p.add(owned(imageCredentialDir, 0o755), state.NewFile(
		path.Join(imageCredentialDir, imageCredentialName), 0o700,
		"#!/bin/sh\nexec "+thisProgram+" image-credential\n"))
	p.owe([]string{KubeletUnit},
		state.NewFile(p.imageCredentialConfig(), 0o600, indented(config, "")+"\n"))
}
