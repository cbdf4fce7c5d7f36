"""Options of what a node is to be like, and where the API has them."""

import functools
import inspect

PLACES = {
    'kubernetes_version': ('versions', 'kubernetes'),
    'containerd_version': ('versions', 'containerd'),
    'runc_version': ('versions', 'runc'),
    'cni_version': ('versions', 'cni'),
    'npd_version': ('versions', 'npd'),
    'allow_unknown_versions': ('versions', 'allowUnknown'),
    'allow_vulnerable_versions': ('versions', 'allowVulnerable'),
    'max_pods': ('nodeConfig', 'maxPods'),
    'labels': ('nodeConfig', 'labels'),
    'node_taints': ('nodeConfig', 'taints'),
    'kubelet_config': ('nodeConfig', 'kubelet'),
    'metadata_access': ('network', 'metadata'),
    'use_azure_auth': ('kubernetesAuth', 'useAzureAuth'),
    'kubelet_credential': ('kubernetesAuth', 'kubeletCredential'),
    'drain': ('upgradePolicy', 'drain'),
    'drain_deadline': ('upgradePolicy', 'deadline'),
    'drain_force': ('upgradePolicy', 'drainOptions', 'force'),
    'drain_delete_empty_dir': ('upgradePolicy', 'drainOptions', 'deleteEmptyDir'),
    'ready_timeout': ('upgradePolicy', 'readyTimeout'),
    'maintenance_window': ('upgradePolicy', 'maintenanceWindow'),
    'poll_endpoint': ('monitoring', 'endpoint'),
    'poll_interval': ('monitoring', 'interval'),
    'drift_policy': ('driftPolicy',),
    'drift_policies': ('driftPolicies',),
    'continuous_monitoring': ('continuousMonitoring',),
}


def with_options(function):
    """Gives a function all of these options; az reads them out of its signature."""
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
            for name in PLACES]

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    wrapper.__signature__ = signature.replace(parameters=own + more)
    return wrapper


def apply(properties, given):
    """Puts options where the API has them; what was not given remains as it is."""
    for option, value in given.items():
        if value is None:
            continue
        *parents, last = PLACES[option]
        section = properties
        for parent in parents:
            section = section.setdefault(parent, {})
        if value in ({}, [], ''):  # given, and empty: it is taken away
            section.pop(last, None)
        else:
            section[last] = value
