"""The commands for a cluster as a whole, which flexnode-rp carries out."""

import base64
import os
import shutil
import signal
import subprocess
import sys
import tempfile

from azure.cli.core import azclierror
from azure.cli.core.commands.parameters import get_enum_type

from azext_aks_flex_node._client import connect, member
from azext_aks_flex_node._errors import Strange, told

AKS_VERSION = '2024-02-01'  # of Microsoft.ContainerService


def load_arguments(self):
    for command in ('enable', 'disable'):
        with self.argument_context(f'aks flex-node {command}') as c:
            c.argument('cluster_name', id_part='name', configured_default='flexnode_cluster',
                       options_list=['--name', '-n', '--cluster-name', '--cluster', '-c'],
                       help='Name of the managed cluster.')
            c.argument('admin', options_list=['--admin', '-a'], action='store_true',
                       help="Use the administrator credentials of the cluster, as "
                            "`az aks get-credentials --admin` does.")
            c.argument('program', help='The program flexnode-rp. Default: the one in PATH.')
            c.argument('dry_run', action='store_true',
                       help='Show the changes without making them.')
            c.argument('yes', options_list=['--yes', '-y'], action='store_true',
                       help='Do not ask for confirmation.')
    with self.argument_context('aks flex-node enable') as c:
        c.argument('provider', help='User name of the resource provider in the cluster: the '
                                    'object id of its identity. Default: flexnode-rp.')
        c.argument('identities', help='Object id of the Entra group of machines that join with '
                                      'an identity for a certificate.')
        c.argument('kube_proxy', arg_type=get_enum_type(['auto', 'yes', 'no']),
                   help='Whether to apply kube-proxy. Default: only if nothing else serves '
                        'Services on flex nodes.')


def enable_cluster(cmd, resource_group_name, cluster_name, admin=False, program='flexnode-rp',
                   dry_run=False, yes=False, provider=None, identities=None, kube_proxy=None):
    options = {'--provider': provider, '--identities': identities, '--kube-proxy': kube_proxy}
    flags = [f'{name}={value}' for name, value in options.items() if value is not None]
    _run(cmd, resource_group_name, cluster_name, admin, program,
         ['prepare'] + flags + _common(dry_run, yes))


def disable_cluster(cmd, resource_group_name, cluster_name, admin=False, program='flexnode-rp',
                    dry_run=False, yes=False):
    _run(cmd, resource_group_name, cluster_name, admin, program,
         ['unprepare'] + _common(dry_run, yes))


def _common(dry_run, yes):
    return ['--dry-run'] * dry_run + ['--yes'] * yes


def _run(cmd, group, cluster, admin, program, args):
    """Runs flexnode-rp with the caller's kubeconfig, and ends with its exit code."""
    found = shutil.which(program)
    if not found:
        raise azclierror.FileOperationError(
            f"Cannot find the program '{program}'.",
            'Install the package flexnode-rp, or set its path with --program.')
    for name in {'SIGHUP', 'SIGTERM'} & set(dir(signal)):  # they would leave the kubeconfig behind
        if signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN:
            signal.signal(getattr(signal, name), _end)
    with tempfile.TemporaryDirectory(prefix='flexnode-') as directory:  # 0700
        path = os.path.join(directory, 'kubeconfig')
        with open(path, 'xb', opener=lambda name, flags: os.open(name, flags, 0o600)) as f:
            f.write(_kubeconfig(cmd, group, cluster, admin))
        sys.stdout.flush()
        code = subprocess.run([found, 'cluster'] + args + ['--kubeconfig', path],
                              check=False).returncode
    if code:
        sys.exit(code)


def _end(number, _):
    signal.signal(number, signal.SIG_IGN)  # a terminal that closes sends it twice
    sys.exit(1)


def _kubeconfig(cmd, group, cluster, admin):
    """The caller's kubeconfig, as `az aks get-credentials` gets it."""
    action = 'listClusterAdminCredential' if admin else 'listClusterUserCredential'
    params = {'api-version': AKS_VERSION}
    if not admin:
        params['format'] = 'exec'
    with told():
        client = connect(cmd)
        answer = client.read('POST', f'{client.cluster(group, cluster)}/{action}', params=params)
        configs = member(answer, 'kubeconfigs')
        if not configs:
            raise Strange('no kubeconfig')
        return base64.b64decode(member(configs[0], 'value'))
