@description('The managed cluster, in the resource group of the deployment.')
param clusterName string

@description('The flex node; in lower case it is the name of the Node.')
param nodeName string

@description('The service principal that the machine is to Azure.')
param clientId string

@secure()
param clientSecret string

@description('Of kubernetes, containerd, ...: the provider chooses the others.')
param versions object = {}

@description('How the node follows: endpoint and interval. Without an endpoint it polls the provider with the key of its machine; the endpoint resourceManager needs a role.')
param monitoring object = {}

param labels object = {}

param maxPods int = 110

@description('True has the URL in the outputs, for all who may read the deployment.')
param outputConfigUrl bool = false

resource cluster 'Microsoft.ContainerService/managedClusters@2024-02-01' existing = {
  name: clusterName
}

resource node 'Microsoft.ContainerService/managedClusters/flexNodeConfig@2026-05-01-preview' = {
  parent: cluster
  name: nodeName
  properties: {
    continuousMonitoring: true
    monitoring: monitoring
    azureAuth: {
      method: 'servicePrincipal'
      servicePrincipal: {
        clientId: clientId
        clientSecret: clientSecret
      }
    }
    versions: versions
    nodeConfig: {
      maxPods: maxPods
      labels: labels
    }
  }
}

// Whoever may read the deployment reads it; it works for one machine, for 24 hours at most.
output configUrl string = outputConfigUrl ? node.listConfigUrl().configUrl : ''
