"""The options."""

from azure.cli.core.commands.parameters import (file_type, get_enum_type,
                                                get_three_state_flag)

from azext_aks_flex_node import _validators as check

METHODS = ['bootstrapToken', 'servicePrincipal', 'managedIdentity', 'arc']


def load_arguments(self, _):
    with self.argument_context('aks flex-node') as c:
        c.argument('cluster_name', options_list=['--cluster-name', '--cluster', '-c'],
                   id_part='name', configured_default='flexnode_cluster',
                   help='Name of the managed cluster. To set a default: '
                        '`az configure --defaults flexnode_cluster=NAME`.')
        c.argument('node_name', options_list=['--name', '--node', '-n'], id_part='child_name_1',
                   help='Name of the flex node; in lower case it is that of the Node.')
        c.argument('endpoint', configured_default='flexnode_endpoint',
                   validator=check.endpoint,
                   help='URL of a resource provider of your own, which is asked in the place '
                        'of Azure Resource Manager, with a token for the audience that it has: '
                        '`az configure --defaults flexnode_endpoint=URL flexnode_audience=ID`.')
        c.argument('timeout', type=int,
                   help='Seconds to wait for a cluster that does not answer.')
    with self.argument_context('aks flex-node list') as c:
        c.argument('cluster_name', options_list=['--cluster-name', '--cluster', '-c'],
                   id_part=None)
        c.argument('filter_expression', options_list=['--filter'],
                   help='Which nodes: up to eight terms such as "state eq \'failed\'", with '
                        '"and" between them.')
    for command in ('create', 'update'):
        with self.argument_context(f'aks flex-node {command}') as c:
            _identity(c, command)
            _node(c)
            _changes(c)
    with self.argument_context('aks flex-node rollback') as c:
        c.argument('config_version', help='A version that `az aks flex-node history` shows.')
    with self.argument_context('aks flex-node diagnose') as c:
        c.argument('kind', arg_type=get_enum_type(['doctor', 'supportBundle']),
                   help='What the machine is asked for.')
        c.argument('file', options_list=['--file', '-f'], type=file_type,
                   help='The new file for the support bundle.')
        c.argument('timeout', type=int, help='For how many seconds to wait for the machine.')
    with self.argument_context('aks flex-node wait') as c:
        _conditions(c)


def _identity(c, command):
    group = 'Authentication'
    if command == 'create':
        c.argument('auth_method', arg_type=get_enum_type(METHODS), arg_group=group,
                   help='What the machine is to Azure.')
        c.argument('principal_id', arg_group=group,
                   help='Object id of a system-assigned managed identity.')
        c.argument('arc_machine_id', arg_group=group, options_list=['--arc-machine-id'],
                   help="Resource id of the Arc machine. Default: the one of the node's name "
                        "in the cluster's resource group.")
        c.argument('output_config_url', options_list=['--output-config-url', '--output-url'],
                   action='store_true',
                   help='Answer with properties.configUrl, the URL that a machine joins with. '
                        'It is a secret until it is used.')
    c.argument('client_id', arg_group=group,
               help='Client id of the service principal or of a user-assigned managed '
                    'identity.')
    c.argument('client_secret', arg_group=group,
               help='Secret of the service principal. Use @FILE, so that no list of processes '
                    'shows it; `create` asks for it at a terminal.')
    c.argument('client_tenant', arg_group=group,
               help="Tenant of the service principal. Default: the cluster's.")
    c.argument('use_azure_auth', arg_type=get_three_state_flag(), arg_group=group,
               help='kubelet joins with the identity in Azure, and not with a bootstrap token.')
    c.argument('kubelet_credential', arg_type=get_enum_type(['certificate', 'token']),
               arg_group=group, help='What kubelet shows the cluster with --use-azure-auth.')


def _node(c):
    group = 'Node'
    c.argument('kubernetes_version', options_list=['--kubernetes-version', '-k'],
               arg_group=group, help='Version of Kubernetes.')
    for name, label in (('containerd', 'containerd'), ('runc', 'runc'),
                        ('cni', 'the CNI plugins'), ('npd', 'node-problem-detector')):
        c.argument(f'{name}_version', arg_group=group, help=f'Version of {label}.')
    c.argument('allow_unknown_versions', options_list=['--allow-unknown'],
               arg_type=get_three_state_flag(), arg_group=group,
               help='Accept versions whose digests the provider does not know.')
    c.argument('allow_vulnerable_versions', options_list=['--allow-vulnerable'],
               arg_type=get_three_state_flag(), arg_group=group,
               help='Accept versions with which a container can break out.')
    c.argument('max_pods', options_list=['--max-pods', '-m'], type=int, arg_group=group,
               help='How many pods the node takes.')
    c.argument('labels', nargs='*', validator=check.labels, arg_group=group,
               help='Labels of the node, KEY=VALUE with spaces between them. They replace all '
                    "that are there; '' takes all away.")
    c.argument('node_taints', nargs='*', validator=check.taints, arg_group=group,
               help='Taints of the node, KEY=VALUE:EFFECT with commas between them. They '
                    "replace all that are there; '' takes all away.")
    c.argument('kubelet_config', validator=check.kubelet, arg_group=group,
               help='File with the settings of kubelet as JSON: kubeReserved, evictionHard, '
                    'imageGCHighThreshold, imageGCLowThreshold, verbosity, nodeIP.')
    c.argument('metadata_access', arg_type=get_enum_type(['block', 'allow']), arg_group=group,
               help='Whether pods reach the metadata service of a cloud, which gives tokens of the '
                    "machine's identity. Default: block.")


def _changes(c):
    group = 'Changes'
    c.argument('continuous_monitoring', options_list=['--continuous-monitoring', '--follow'],
               arg_type=get_three_state_flag(), arg_group=group,
               help='The machine follows this resource, and applies changes by itself. '
                    'Default: true. With false it only joins.')
    c.argument('drift_policy', arg_type=get_enum_type(['report', 'repair', 'off']),
               arg_group=group, help='What happens when the machine is not as configured.')
    c.argument('drift_policies', nargs='*', validator=check.drift, arg_group=group,
               help='The same for single kinds of things, KIND=POLICY with spaces between them: '
                    "unit=repair sysctl=off. They replace all that are there; '' takes all away.")
    c.argument('drain', arg_type=get_enum_type(['minor', 'always', 'never']), arg_group=group,
               help='When pods are moved away before a change.')
    c.argument('drain_deadline', arg_group=group,
               help='How long moving them may take, such as PT15M.')
    c.argument('drain_force', arg_type=get_three_state_flag(), arg_group=group,
               help='Delete pods without a controller too. By default such a pod blocks the change.')
    c.argument('drain_delete_empty_dir', arg_group=group, arg_type=get_three_state_flag(),
               options_list=['--drain-delete-empty-dir', '--drain-empty-dir'],
               help='Move pods with an emptyDir volume too, whose data is lost. Default: true.')
    c.argument('ready_timeout', arg_group=group,
               help='How long a node may take to become healthy before rollback, such as PT5M.')
    c.argument('maintenance_window', nargs='*', validator=check.window, arg_group=group,
               help='When a change may begin: days=Saturday,Sunday start=22:00 duration=PT4H '
                    "utcOffset=+01:00; '' is at any time.")
    c.argument('poll_endpoint', arg_group=group,
               help='URL of the provider that the machine polls, or resourceManager. Default: the '
                    "provider's own.")
    c.argument('poll_interval', arg_group=group,
               help='Mean time between two polls, such as PT30S.')


def _conditions(c):
    group = 'Wait Condition'
    for name, text in (
            ('ready', 'Wait until the Node is Ready.'),
            ('created', "Wait until created, with provisioningState 'Succeeded'."),
            ('updated', "Wait until updated, with provisioningState 'Succeeded'."),
            ('deleted', 'Wait until deleted.'),
            ('exists', 'Wait until the flex node exists.')):
        c.argument(name, action='store_true', arg_group=group, help=text)
    c.argument('custom', arg_group=group, help='Wait until this JMESPath query is satisfied.')
    c.argument('interval', type=int, arg_group=group, help='Polling interval in seconds.')
    c.argument('timeout', type=int, arg_group=group, help='Seconds to wait at most.')
