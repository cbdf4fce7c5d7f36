"""What the commands do. Resources are passed as the API has them, `properties` and all."""

import base64
import os
import time

from azure.cli.core import azclierror
from azure.cli.core.util import user_confirmation
from knack.log import get_logger

from azext_aks_flex_node._client import POLL_SECONDS, connect, content, member
from azext_aks_flex_node._desired import apply, with_options
from azext_aks_flex_node._errors import Refused, told
from azext_aks_flex_node._validators import secret

CLUSTER_SECONDS = 60  # a cluster that answers needs none of them
JOIN = 'sudo aks-flex-node agent --config-url-file -'
ISSUED = ('configUrl', 'configUrlExpires')  # what a machine joins with, and until when
logger = get_logger(__name__)

REPLACE = ("Settings of '{}' that are not specified get their defaults, including its identity, "
           'labels and taints, and its machine applies them. Are you sure?')

STOP = ("'{}' will no longer follow its resource: its machine applies this change and no later "
        'one, and only a new URL on the machine ends that. Are you sure?')


@with_options
def create_flex_node(cmd, resource_group_name, cluster_name, node_name,
                     auth_method='bootstrapToken', output_config_url=False, replace=False,
                     accept_old_certificate=False,
                     timeout=CLUSTER_SECONDS, endpoint=None, no_wait=False, yes=False, **wanted):
    if no_wait and output_config_url:
        raise azclierror.MutuallyExclusiveArgumentError(
            '--output-config-url cannot be combined with --no-wait.',
            'Get it later: az aks flex-node get-config-url')
    node = {'properties': {'azureAuth': {'method': auth_method}}}
    apply(node['properties'], wanted)
    apply(node['properties'], _secrets(auth_method, wanted))
    if replace:
        user_confirmation(REPLACE.format(node_name), yes)
    with told():
        client = connect(cmd, endpoint)
        url = client.node(resource_group_name, cluster_name, node_name)
        try:
            node = _put(client, url, node, no_wait=no_wait, seconds=timeout,
                        headers=None if replace else {'If-None-Match': '*'},
                        params={'acceptOldCertificate': 'true'} if accept_old_certificate else None)
        except Refused as ex:
            if ex.code == 'PreconditionFailed':
                raise _exists(url) from ex
            raise
        if output_config_url:
            issued = _issue(client, url, timeout)
            member(node, 'properties').update((key, issued[key]) for key in ISSUED)
    return node


def _exists(url):
    """A node that create would replace."""
    *_, group, _, _, _, cluster, _, node = url.split('/')
    return azclierror.ValidationError(
        f"'{node}' already exists and was not changed. With --replace --yes, settings that are not "
        'specified get their defaults.',
        f'For its URL: az aks flex-node get-config-url -g {group} -c {cluster} -n {node}; to change '
        f'only the specified settings: az aks flex-node update -g {group} -c {cluster} -n {node}')


def _secrets(method, wanted):
    """The secret of the service principal that a new node is, or is connected to Arc by."""
    if method == 'servicePrincipal':
        if not wanted['client_id']:
            raise azclierror.RequiredArgumentMissingError(
                '--auth-method servicePrincipal needs --client-id.')
        return {'client_secret': secret('--client-secret', wanted['client_id'],
                                        wanted['client_secret'])}
    return {'onboarding_secret': secret('--onboarding-secret', wanted['onboarding_client_id'],
                                        wanted['onboarding_secret'])}


def _put(client, url, node, no_wait=False, seconds=CLUSTER_SECONDS, headers=None, params=None):
    """PUTs a node and waits until it is made, but not for ever for a cluster that is down."""
    answer = client.send('PUT', url, body=node, headers=headers, params=params)
    if no_wait:
        return None
    node = content(answer)
    if member(node, 'properties').get('provisioningState') in ('Creating', 'Updating'):
        node = client.finish(answer, seconds)
        if node is None:
            raise _down(url, "'{}' is stored, and", 'wait --created')
    return node


def _down(url, what, command):
    """The provider cannot use the cluster; the commands that show why, and what comes later."""
    parts = url.split('/')
    node = f'-g {parts[4]} -c {parts[8]} -n {parts[10]}'
    return azclierror.AzureResponseError(
        f"The resource provider cannot use the cluster '{parts[8]}' yet, so "
        f'{what.format(parts[10])} is made when it can.',
        [f'The reason: az aks flex-node show {node} --query properties.status.join.reason',
         f'Afterwards: az aks flex-node {command} {node}'])


def _issue(client, url, seconds):
    """A URL for a machine: the one in force, or another in place of one that was used."""
    try:
        return _action(client, url, 'listConfigUrl', seconds)
    except Refused as ex:
        if ex.code != 'NoConfigUrl':
            raise
        return _action(client, url, 'regenerateToken', seconds)


def _action(client, url, action, seconds, params=None):
    """What an action that ends with a URL has issued."""
    answer = client.send('POST', f'{url}/{action}', body={}, params=params)
    if answer.http_response.status_code != 202:
        result = content(answer)
    else:
        result = client.finish(answer, seconds)
        if result is None:
            raise _down(url, "'{}' is stored, and its URL", 'get-config-url')
    for name in ISSUED:
        member(result, name)
    return result


def get_flex_node(cmd, resource_group_name, cluster_name, node_name, endpoint=None):
    with told():
        client = connect(cmd, endpoint)
        node = client.read('GET', client.node(resource_group_name, cluster_name, node_name))
        member(node, 'properties')
        return node


show_flex_node = get_flex_node


@with_options
def update_flex_node(instance, auth_method=None, **wanted):
    properties = instance['properties']
    auth = properties.setdefault('azureAuth', {})
    if auth_method and auth_method != auth.get('method'):
        auth.clear()
        auth['method'] = auth_method
    apply(properties, wanted)
    return instance


def put_flex_node(cmd, resource_group_name, cluster_name, node_name, parameters,
                  timeout=None, endpoint=None, no_wait=False, yes=False):
    with told():
        client = connect(cmd, endpoint)
        url = client.node(resource_group_name, cluster_name, node_name)
        if parameters['properties'].get('continuousMonitoring') is False and not yes:
            now = member(client.read('GET', url), 'properties')
            if now.get('continuousMonitoring'):
                user_confirmation(STOP.format(node_name))
        return _put(client, url, parameters, no_wait=no_wait, seconds=timeout or CLUSTER_SECONDS,
                    headers=_unchanged(parameters))


def _unchanged(resource):
    """The condition that a resource is as it was read."""
    return {'If-Match': resource['eTag']} if resource.get('eTag') else None


def list_flex_nodes(cmd, resource_group_name, cluster_name, filter_expression=None,
                    endpoint=None):
    params = {'$filter': filter_expression} if filter_expression else None
    with told():
        client = connect(cmd, endpoint)
        return list(client.pages(
            client.cluster(resource_group_name, cluster_name) + '/flexNodeConfig', params))


def _at_once(revoke_now):
    return {'revokeNow': 'true'} if revoke_now else None


def delete_flex_node(cmd, resource_group_name, cluster_name, node_name, revoke_now=False,
                     endpoint=None):
    with told():
        client = connect(cmd, endpoint)
        gone = client.read('DELETE', client.node(resource_group_name, cluster_name, node_name),
                           params=_at_once(revoke_now))
    if gone is None:
        logger.warning("'%s' does not exist. If an earlier answer was lost, its machine's identity may "
                       'still have a role: az role assignment list --scope CLUSTER', node_name)
    cleanup = (gone or {}).get('cleanup') or {}
    if cleanup.get('certificateExpires'):
        logger.warning("The name '%s' is free again %sat %s. Before that `create` needs "
                       '--accept-old-certificate.', node_name,
                       '' if revoke_now else 'when the machine has left, or ',
                       cleanup['certificateExpires'])
    role = cleanup.get('roleAssignmentToRemove')
    if role:
        who = role.get('assignee') or ''
        logger.warning("The machine's kubelet uses an Azure token, which was not revoked: "
                       'az role assignment delete --assignee %s --scope %s',
                       'PRINCIPAL' if who.startswith('/') else who, role.get('scope'))
        if who.startswith('/'):
            logger.warning('PRINCIPAL is that of its Arc machine: az resource show --ids %s '
                           '--query identity.principalId', who)


def rotate_token(cmd, resource_group_name, cluster_name, node_name, revoke_now=False,
                 timeout=CLUSTER_SECONDS, endpoint=None):
    with told():
        client = connect(cmd, endpoint)
        return _action(client, client.node(resource_group_name, cluster_name, node_name),
                       'regenerateToken', timeout, _at_once(revoke_now))


def get_config_url(cmd, resource_group_name, cluster_name, node_name, timeout=CLUSTER_SECONDS,
                   endpoint=None):
    with told():
        client = connect(cmd, endpoint)
        issued = _action(client, client.node(resource_group_name, cluster_name, node_name),
                         'listConfigUrl', timeout)
    logger.warning('Anyone who has this URL can join a machine as %s until %s.', node_name,
                   issued['configUrlExpires'])
    return issued['configUrl']


def replace_machine(cmd, resource_group_name, cluster_name, node_name, timeout=CLUSTER_SECONDS,
                    endpoint=None):
    issued = rotate_token(cmd, resource_group_name, cluster_name, node_name, revoke_now=True,
                          timeout=timeout, endpoint=endpoint)
    logger.warning('On the new machine, with configUrl on standard input, until %s:\n  %s',
                   issued['configUrlExpires'], JOIN)
    return dict(issued, command=JOIN)


def summarize_flex_nodes(cmd, resource_group_name, cluster_name, endpoint=None):
    with told():
        client = connect(cmd, endpoint)
        found = client.read('POST', client.cluster(resource_group_name, cluster_name) +
                            '/summarizeFlexNodes', body={})
        member(found, 'nodes')
        return found


def allow_versions(cmd, resource_group_name, cluster_name, change=None, failures=None,
                   duration=None, endpoint=None):
    ask = {'change': change, 'failures': failures, 'for': duration}
    with told():
        client = connect(cmd, endpoint)
        found = client.read('POST', client.cluster(resource_group_name, cluster_name) +
                            '/allowVersions', body=_given(ask))
        return member(found, 'changes')


def _given(members):
    return {name: value for name, value in members.items() if value is not None}


def pause(cmd, resource_group_name, cluster_name, node_name=None, endpoint=None):
    return _pause(cmd, resource_group_name, cluster_name, node_name, endpoint, True)


def resume(cmd, resource_group_name, cluster_name, node_name=None, endpoint=None):
    return _pause(cmd, resource_group_name, cluster_name, node_name, endpoint, False)


def _pause(cmd, group, cluster, node, endpoint, paused):
    """Says of a node, or of a cluster where none is named, whether changes reach it."""
    policy = 'upgradePolicy' if node else 'rolloutPolicy'
    with told():
        client = connect(cmd, endpoint)
        url = client.node(group, cluster, node) if node else client.cluster(group, cluster)
        resource = client.read('GET', url)
        member(resource, 'properties').setdefault(policy, {})['paused'] = paused
        stored = client.read('PUT', url, body=resource, headers=_unchanged(resource))
        if (member(stored, 'properties').get(policy) or {}).get('paused', False) != paused:
            raise azclierror.AzureResponseError(
                f"The endpoint has not stored {policy}.paused of '{node or cluster}'.",
                'Use the resource provider directly: --endpoint URL')
        return stored


def list_history(cmd, resource_group_name, cluster_name, node_name, endpoint=None):
    with told():
        client = connect(cmd, endpoint)
        found = client.read('POST', client.node(resource_group_name, cluster_name, node_name) +
                            '/listHistory', body={})
        return member(found, 'revisions')


def diff_flex_node(cmd, resource_group_name, cluster_name, node_name, from_version=None,
                   to_version=None, endpoint=None):
    with told():
        client = connect(cmd, endpoint)
        found = client.read('POST', client.node(resource_group_name, cluster_name, node_name) +
                            '/diff', body=_given({'from': from_version, 'to': to_version}))
        member(found, 'changes')
        return found


def roll_back_flex_node(cmd, resource_group_name, cluster_name, node_name, config_version,
                        endpoint=None):
    with told():
        client = connect(cmd, endpoint)
        return client.read('POST', client.node(resource_group_name, cluster_name, node_name) +
                           '/rollback', body={'configVersion': config_version})


def wait_for_flex_node(cmd, resource_group_name, cluster_name, node_name, ready=False,
                       created=False, updated=False, deleted=False, exists=False, custom=None,
                       interval=10, timeout=3600, endpoint=None):
    if not any((ready, created, updated, deleted, exists, custom)):
        raise azclierror.RequiredArgumentMissingError(
            'Specify what to wait for: --created, --updated, --deleted, --exists, --ready or '
            '--custom.')
    with told():
        client = connect(cmd, endpoint)
        url = client.node(resource_group_name, cluster_name, node_name)
        end = time.monotonic() + timeout
        while not _reached(client, url, ready, created or updated, deleted, exists, custom):
            if time.monotonic() + interval > end:
                raise azclierror.AzureResponseError(
                    f"'{node_name}' did not reach the requested state within {timeout} seconds.",
                    'az aks flex-node show lists its conditions.')
            time.sleep(interval)


def _reached(client, url, ready, made, deleted, exists, custom):
    """Whether all that is waited for is so; a node that has failed is waited for no more."""
    try:
        node = client.read('GET', url)
    except Refused as ex:
        if ex.status_code != 404:
            raise
        return deleted
    if deleted:
        return False
    properties = member(node, 'properties')
    conditions = {c['type']: c for c in (properties.get('status') or {}).get('conditions') or []}
    state = properties.get('provisioningState')
    if state == 'Failed' and not exists:
        resolved = conditions.get('Resolved', {}).get('message', 'see its condition Resolved')
        raise azclierror.AzureResponseError(f"'{member(node, 'name')}' has failed: {resolved}")
    if made and state != 'Succeeded':
        return False
    if ready and conditions.get('Ready', {}).get('status') != 'True':
        return False
    if custom:
        import jmespath
        return bool(jmespath.search(custom, node))
    return True


def diagnose_flex_node(cmd, resource_group_name, cluster_name, node_name, kind='doctor',
                       last=False, file=None, timeout=600, endpoint=None, no_wait=False):
    if kind == 'supportBundle' and not file and not no_wait:
        raise azclierror.RequiredArgumentMissingError(
            'Specify a file for the encrypted support bundle: --file.')
    if file and os.path.lexists(file):
        raise azclierror.FileOperationError(f'{file} already exists and was not changed.')
    with told():
        client = connect(cmd, endpoint)
        url = client.node(resource_group_name, cluster_name, node_name)
        asked = client.read('POST', f'{url}/listDiagnosis', body={}) if last else client.read(
            'POST', f'{url}/diagnose', body={'kind': kind})
        if no_wait:
            return None
        ours = member(asked, 'id')
        end = time.monotonic() + timeout
        while member(asked, 'state') == 'Requested':
            if time.monotonic() > end:
                raise azclierror.AzureResponseError(
                    f"'{node_name}' has not answered within {timeout} seconds. It may answer "
                    'later, within a day: --last (for a bundle with --file) gets the answer.',
                    'az aks flex-node show reports when it was last seen.')
            time.sleep(POLL_SECONDS)
            asked = client.read('POST', f'{url}/listDiagnosis', body={})
            if member(asked, 'id') != ours:
                raise azclierror.AzureResponseError(
                    f"'{node_name}' has received a request for another diagnosis, "
                    'which replaces this one.')
    if asked['state'] == 'Refused':
        raise azclierror.AzureResponseError(
            f"'{node_name}' refuses: {asked.get('message', '')}")
    bundle = asked.pop('supportBundle', None)
    if bundle and file:
        _write(file, base64.b64decode(bundle))
    return asked


def _write(file, data):
    """Writes a new file that its owner alone reads."""
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), 'wb') as out:
            out.write(data)
    except OSError as ex:
        raise azclierror.FileOperationError(f'{file} cannot be written: {ex}') from ex
