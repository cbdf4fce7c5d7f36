"""az aks flex-node: machines anywhere as nodes of an AKS cluster."""

from azure.cli.core import AzCommandsLoader


class FlexNodeCommandsLoader(AzCommandsLoader):
    """Loads the commands; what they need is imported when one of them is asked for."""

    def __init__(self, cli_ctx=None):
        from azure.cli.core.commands import CliCommandType
        custom = CliCommandType(operations_tmpl='azext_aks_flex_node.custom#{}')
        super().__init__(cli_ctx=cli_ctx, custom_command_type=custom)

    def load_command_table(self, args):
        from azext_aks_flex_node import _help  # noqa: F401 pylint: disable=unused-import
        from azext_aks_flex_node.commands import load_command_table
        load_command_table(self, args)
        return self.command_table

    def load_arguments(self, command):
        from azext_aks_flex_node._params import load_arguments
        load_arguments(self, command)


COMMAND_LOADER_CLS = FlexNodeCommandsLoader
