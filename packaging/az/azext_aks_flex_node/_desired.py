"""Options of what a node is to be like, and where the API has them: one table."""

from collections import namedtuple
import functools
import inspect

from azure.cli.core.azclierror import MutuallyExclusiveArgumentError

# places are below properties. Of several it is the one below the method of azureAuth. settings are
# those of the argument: names, type (int, 'flag' or a list of words), nargs, and check, the name of
# its validator.
Option = namedtuple('Option', 'places group help settings')

OPTIONS = {}


def _add(group, name, places, text, **settings):
    OPTIONS[name] = Option(places.split(), group, text, settings)


def _of_identity(name, places, text, **settings):
    places = ' '.join(f'azureAuth.{place}' for place in places.split())
    _add('Authentication', name, places, text, **settings)


_of_identity('client_id', 'servicePrincipal.clientId managedIdentity.clientId',
             'Client id of the service principal or of a user-assigned managed identity.')
_of_identity('client_secret', 'servicePrincipal.clientSecret',
             'Secret of the service principal. Use @FILE, so that no list of processes shows it; '
             '`create` asks for it at a terminal. The machine proves it before it counts.')
_of_identity('client_tenant', 'servicePrincipal.clientTenant',
             "Tenant of the service principal. Default: the cluster's.")
_of_identity('secret_expires', 'servicePrincipal.secretExpires arc.onboarding.secretExpires',
             'Day on which the secret ends in Entra ID, such as 2027-01-31. The machine warns two '
             'weeks before.')
_of_identity('principal_id',
             'servicePrincipal.principalId managedIdentity.principalId arc.principalId',
             'Object id of the identity, by which the cluster knows the node. Default: what its '
             'machine says; a system-assigned managed identity has none.')
_of_identity('arc_machine_id', 'arc.machineResourceId',
             "Resource id of the Arc machine. Default: the one of the node's name in the "
             "cluster's resource group.")
_of_identity('onboarding_client_id', 'arc.onboarding.clientId',
             'Client id of the service principal that connects the machine to Arc if it is not '
             'connected yet. It is no identity of the node.')
_of_identity('onboarding_secret', 'arc.onboarding.clientSecret',
             'Secret of that service principal. Use @FILE; `create` asks for it at a terminal. '
             'The machine erases it once it has joined.')
_of_identity('onboarding_tenant', 'arc.onboarding.clientTenant',
             "Tenant of that service principal. Default: the cluster's.")
_of_identity('auto_role_assignment', 'arc.autoRoleAssignment',
             'Who connects the machine to Arc also gives its identity the roles that '
             '--kubelet-credential token needs.', type='flag')

_add('Authentication', 'use_azure_auth', 'kubernetesAuth.useAzureAuth',
     'kubelet joins with the identity in Azure, and not with a bootstrap token.', type='flag')
_add('Authentication', 'kubelet_credential', 'kubernetesAuth.kubeletCredential',
     'What kubelet shows the cluster with --use-azure-auth.', type=['certificate', 'token'])

_add('Node', 'kubernetes_version', 'versions.kubernetes', 'Version of Kubernetes.',
     names=['--kubernetes-version', '-k'])
_add('Node', 'containerd_version', 'versions.containerd', 'Version of containerd.')
_add('Node', 'runc_version', 'versions.runc', 'Version of runc.')
_add('Node', 'cni_version', 'versions.cni', 'Version of the CNI plugins.')
_add('Node', 'npd_version', 'versions.npd', 'Version of node-problem-detector.')
_add('Node', 'allow_unknown_versions', 'versions.allowUnknown',
     'Accept versions whose digests the provider does not know.',
     names=['--allow-unknown'], type='flag')
_add('Node', 'allow_vulnerable_versions', 'versions.allowVulnerable',
     'Accept versions with which a container can break out.',
     names=['--allow-vulnerable'], type='flag')
_add('Node', 'max_pods', 'nodeConfig.maxPods', 'How many pods the node takes.',
     names=['--max-pods', '-m'], type=int)
_add('Node', 'labels', 'nodeConfig.labels',
     'Labels of the node, KEY=VALUE with spaces between them. They replace all that are there; '
     "'' takes all away.", nargs='*', check='labels')
_add('Node', 'node_taints', 'nodeConfig.taints',
     'Taints of the node, KEY=VALUE:EFFECT with commas between them. They replace all that are '
     "there; '' takes all away.", nargs='*', check='taints')
_add('Node', 'kubelet_config', 'nodeConfig.kubelet',
     'File with the settings of kubelet as JSON: kubeReserved, evictionHard, '
     'imageGCHighThreshold, imageGCLowThreshold, verbosity, nodeIP.', check='kubelet')
_add('Node', 'metadata_access', 'network.metadata',
     'Whether pods reach the metadata service of a cloud, which gives tokens of the machine\'s '
     'identity. Default: block.', type=['block', 'allow'])

_add('Changes', 'continuous_monitoring', 'continuousMonitoring',
     'The machine follows this resource, and applies changes by itself. Default: true. With false '
     'it only joins; `update` asks before it ends that.',
     names=['--continuous-monitoring', '--follow'], type='flag')
_add('Changes', 'drift_policy', 'driftPolicy',
     'What happens when the machine is not as configured.', type=['report', 'repair', 'off'])
_add('Changes', 'drift_policies', 'driftPolicies',
     'The same for single kinds of things, KIND=POLICY with spaces between them: unit=repair '
     "sysctl=off. They replace all that are there; '' takes all away.", nargs='*', check='drift')
_add('Changes', 'drain', 'upgradePolicy.drain', 'When pods are moved away before a change.',
     type=['minor', 'always', 'never'])
_add('Changes', 'drain_deadline', 'upgradePolicy.deadline',
     'How long moving them may take, such as PT15M.')
_add('Changes', 'drain_force', 'upgradePolicy.drainOptions.force',
     'Delete pods without a controller too. By default such a pod blocks the change.', type='flag')
_add('Changes', 'drain_delete_empty_dir', 'upgradePolicy.drainOptions.deleteEmptyDir',
     'Move pods with an emptyDir volume too, whose data is lost. Default: true.',
     names=['--drain-delete-empty-dir', '--drain-empty-dir'], type='flag')
_add('Changes', 'ready_timeout', 'upgradePolicy.readyTimeout',
     'How long a node may take to become healthy before rollback, such as PT5M.')
_add('Changes', 'maintenance_window', 'upgradePolicy.maintenanceWindow',
     'When a change may begin: days=Saturday,Sunday start=22:00 duration=PT4H utcOffset=+01:00; '
     "'' is at any time.", nargs='*', check='window')
_add('Changes', 'poll_endpoint', 'monitoring.endpoint',
     "URL of the provider that the machine polls, or resourceManager. Default: the provider's own.")
_add('Changes', 'poll_interval', 'monitoring.interval',
     'Mean time between two polls, such as PT30S.')


def with_options(function):
    """Gives a function all of these options; az reads them out of its signature."""
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
            for name in OPTIONS]

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
        *parents, last = _place(option, properties).split('.')
        section = properties
        for parent in parents:
            section = section.setdefault(parent, {})
        if value in ({}, [], ''):  # given, and empty: it is taken away
            section.pop(last, None)
        else:
            section[last] = value


def _place(option, properties):
    """Where an option is. One that the method of a node has no use for is refused."""
    places = OPTIONS[option].places
    if not places[0].startswith('azureAuth.'):
        return places[0]
    method = (properties.get('azureAuth') or {}).get('method', 'bootstrapToken')
    for place in places:
        if place.split('.')[1] == method:
            return place
    methods = ' or '.join(place.split('.')[1] for place in places)
    raise MutuallyExclusiveArgumentError(
        f"--{option.replace('_', '-')} goes with --auth-method {methods} only.",
        f'The method of the node is {method}.')
