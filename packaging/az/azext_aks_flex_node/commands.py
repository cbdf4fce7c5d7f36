"""The commands, and what carries them out."""

from azure.cli.core.commands import CliCommandType

from azext_aks_flex_node._format import (
    changes_table, diff_table, findings_table, history_table, issued_table, node_table,
    nodes_table, paused_table, summary_table)

DELETE = ('The node is deleted: its URL and token are revoked, and a machine that follows it '
          'leaves the cluster and is restored. Are you sure?')
REPLACE = ('The access of the current machine is revoked at once: it can no longer write, its '
           'Node is deleted, and its pods run elsewhere. A new machine joins with a new '
           'URL. Are you sure?')


def load_command_table(self, _):
    own = CliCommandType(operations_tmpl='azext_aks_flex_node.custom#{}')
    with self.command_group('aks flex-node', is_preview=True) as g:
        g.custom_command('create', 'create_flex_node', supports_no_wait=True,
                         table_transformer=node_table)
        g.generic_update_command('update', getter_name='get_flex_node', getter_type=own,
                                 setter_name='put_flex_node', setter_type=own,
                                 custom_func_name='update_flex_node', supports_no_wait=True,
                                 table_transformer=node_table)
        g.custom_show_command('show', 'show_flex_node', table_transformer=node_table)
        g.custom_command('list', 'list_flex_nodes', table_transformer=nodes_table)
        g.custom_command('delete', 'delete_flex_node', confirmation=DELETE)
        g.custom_command('wait', 'wait_for_flex_node')
        g.custom_command('rotate-token', 'rotate_token', table_transformer=issued_table)
        g.custom_command('replace', 'replace_machine', confirmation=REPLACE,
                         table_transformer=issued_table)
        g.custom_command('get-config-url', 'get_config_url')
        g.custom_command('history', 'list_history', table_transformer=history_table)
        g.custom_command('diff', 'diff_flex_node', table_transformer=diff_table)
        g.custom_command('summary', 'summarize_flex_nodes', table_transformer=summary_table)
        g.custom_command('allow-versions', 'allow_versions', table_transformer=changes_table)
        g.custom_command('pause', 'pause', table_transformer=paused_table)
        g.custom_command('resume', 'resume', table_transformer=paused_table)
        g.custom_command('diagnose', 'diagnose_flex_node', supports_no_wait=True,
                         table_transformer=findings_table)
        g.custom_command('rollback', 'roll_back_flex_node', table_transformer=node_table)
    cluster = CliCommandType(operations_tmpl='azext_aks_flex_node._cluster#{}')
    with self.command_group('aks flex-node', cluster, is_preview=True) as g:
        g.command('enable', 'enable_cluster')
        g.command('disable', 'disable_cluster')
