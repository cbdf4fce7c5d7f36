terraform {
  required_providers {
    azapi = {
      source  = "Azure/azapi"
      version = "~> 2.0"
    }
  }
}

variable "cluster_id" {
  type        = string
  description = "Resource id of the managed cluster."
}

variable "node_name" {
  type        = string
  description = "The flex node; in lower case it is the name of the Node."
}

variable "client_id" {
  type        = string
  description = "The service principal that the machine is to Azure."
}

variable "client_secret" {
  type      = string
  sensitive = true
}

variable "versions" {
  type        = map(string)
  default     = {}
  description = "Of kubernetes, containerd, ...: the provider chooses the others."
}

variable "monitoring" {
  type        = map(string)
  default     = {}
  description = "How the node follows: endpoint and interval. Without an endpoint it polls the provider with the key of its machine; the endpoint resourceManager needs a role."
}

variable "labels" {
  type    = map(string)
  default = {}
}

variable "max_pods" {
  type    = number
  default = 110
}

resource "azapi_resource" "node" {
  type      = "Microsoft.ContainerService/managedClusters/flexNodeConfig@2026-05-01-preview"
  parent_id = var.cluster_id
  name      = var.node_name

  # the type is in no schema of azapi
  schema_validation_enabled = false

  body = {
    properties = {
      continuousMonitoring = true
      monitoring           = var.monitoring
      azureAuth = {
        method = "servicePrincipal"
        servicePrincipal = {
          clientId = var.client_id
        }
      }
      versions = var.versions
      nodeConfig = {
        maxPods = var.max_pods
        labels  = var.labels
      }
    }
  }

  sensitive_body = {
    properties = {
      azureAuth = {
        servicePrincipal = {
          clientSecret = var.client_secret
        }
      }
    }
  }

  response_export_values = ["properties.configVersion"]
}

# The URL is in the state. It works once, within 24 hours, and a change of the node before the join
# revokes it. This resource does not run again by itself; to have another URL before the join:
#   terraform apply -replace=azapi_resource_action.url
resource "azapi_resource_action" "url" {
  type        = azapi_resource.node.type
  resource_id = azapi_resource.node.id
  action      = "listConfigUrl"
  method      = "POST"
  body        = {}

  sensitive_response_export_values = ["configUrl"]
}

output "config_url" {
  value     = azapi_resource_action.url.sensitive_output.configUrl
  sensitive = true
}
