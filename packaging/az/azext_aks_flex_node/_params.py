"""The options."""

from azure.cli.core.commands.parameters import (file_type, get_enum_type,
                                                get_three_state_flag)

from azext_aks_flex_node import _cluster, _validators as check
from azext_aks_flex_node._desired import OPTIONS

METHODS = ['bootstrapToken', 'servicePrincipal', 'managedIdentity', 'arc']


def load_arguments(self, _):
    with self.argument_context('aks flex-node') as c:
        c.argument('cluster_name', options_list=['--cluster-name', '--cluster', '-c'],
                   id_part='name', configured_default='flexnode_cluster',
                   help='Name of the managed cluster. To set a default: '
                        '`az configure --defaults flexnode_cluster=NAME`.')
        c.argument('node_name', options_list=['--name', '--node', '-n'], id_part='child_name_1',
                   help='Name of the flex node; in lower case it is the name of the Node.')
        c.argument('endpoint', configured_default='flexnode_endpoint',
                   validator=check.endpoint,
                   help='URL of your own resource provider, used instead of Azure Resource '
                        'Manager, with a token for its audience: '
                        '`az configure --defaults flexnode_endpoint=URL flexnode_audience=ID`.')
        c.argument('timeout', type=int,
                   help='Seconds to wait for a cluster that does not answer.')
    with self.argument_context('aks flex-node list') as c:
        c.argument('cluster_name', options_list=['--cluster-name', '--cluster', '-c'],
                   id_part=None)
        c.argument('filter_expression', options_list=['--filter'],
                   help='Which nodes: up to eight terms such as "state eq \'failed\'", with '
                        '"and" between them.')
    with self.argument_context('aks flex-node create') as c:
        c.argument('replace', action='store_true',
                   help='Replace an existing node: settings that are not specified get their '
                        'defaults. Without it an existing node is not changed.')
        c.argument('output_config_url', options_list=['--output-config-url', '--output-url'],
                   action='store_true', arg_group='Authentication',
                   help='Return properties.configUrl, the URL that a machine joins with. '
                        'It is a secret until it is used.')
    for command in ('create', 'update'):
        with self.argument_context(f'aks flex-node {command}') as c:
            _node(c, command)
            c.argument('yes', options_list=['--yes', '-y'], action='store_true',
                       help='Do not ask for confirmation.')
    with self.argument_context('aks flex-node create') as c:
        c.argument('accept_old_certificate', action='store_true',
                   options_list=['--accept-old-certificate', '--accept-old-cert'],
                   help='Create the node although the previous machine of its name has not left '
                        'and can read the same data as the pods of the new node until its '
                        'certificate expires.')
    for command, otherwise in (
            ('delete', 'Its name is free when its certificate expires. By default it has 30 '
                       'minutes to leave, which frees the name.'),
            ('rotate-token', 'Its Node is deleted. By default it can write until another machine '
                             'has joined.')):
        with self.argument_context(f'aks flex-node {command}') as c:
            c.argument('revoke_now', action='store_true',
                       help='The cluster refuses the writes of the machine at once. ' + otherwise)
    for command, text in (('pause', 'Pause only the changes of this node.'),
                          ('resume', 'Resume only the changes of this node.')):
        with self.argument_context(f'aks flex-node {command}') as c:
            c.argument('node_name', options_list=['--name', '--node', '-n'],
                       id_part='child_name_1', help=f'{text} Default: those of the cluster.')
    with self.argument_context('aks flex-node diff') as c:
        c.argument('from_version', options_list=['--from'],
                   help='The version to compare. Default: the one that the machine runs.')
        c.argument('to_version', options_list=['--to'],
                   help='The version to compare with. Default: the desired one.')
    with self.argument_context('aks flex-node allow-versions') as c:
        c.argument('change', help='Name of the change, as `az aks flex-node summary` shows it. '
                                  'Default: all that are held.')
        c.argument('failures', type=int,
                   help='How many more nodes may fail it, or not answer after it. Default: 1.')
        c.argument('duration', options_list=['--for'],
                   help='For how long, such as PT4H; at most P7D. Default: PT24H.')
    with self.argument_context('aks flex-node rollback') as c:
        c.argument('config_version', help='A version that `az aks flex-node history` shows.')
    with self.argument_context('aks flex-node diagnose') as c:
        c.argument('kind', arg_type=get_enum_type(['doctor', 'supportBundle']),
                   help='The diagnosis to request from the machine.')
        c.argument('file', options_list=['--file', '-f'], type=file_type,
                   help='The new file for the support bundle.')
        c.argument('last', action='store_true',
                   help='Show the answer to the last request, of the last day, without a new one.')
        c.argument('timeout', type=int, help='For how many seconds to wait for the machine.')
    with self.argument_context('aks flex-node wait') as c:
        _conditions(c)
    _cluster.load_arguments(self)


def _node(c, command):
    """What a node is to be like; options.json is the table of it."""
    given = {'create': '', 'update': ' A new method needs all its options.'}[command]
    c.argument('auth_method', arg_type=get_enum_type(METHODS), arg_group='Authentication',
               help='Identity of the machine in Azure.' + given)
    for name, option in OPTIONS.items():
        settings = {}
        if hasattr(check, name):
            settings['validator'] = getattr(check, name)
        if option['type'] == 'boolean':
            settings['arg_type'] = get_three_state_flag()
        elif 'words' in option:
            settings['arg_type'] = get_enum_type(option['words'])
        elif option['type'] == 'integer':
            settings['type'] = int
        elif option['type'] != 'string' and name not in check.FILES:
            settings['nargs'] = '*'
        c.argument(name, arg_group=option['group'], help=option['help'],
                   options_list=option['names'].split(), **settings)


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
    c.argument('timeout', type=int, arg_group=group, help='Maximum wait in seconds.')
