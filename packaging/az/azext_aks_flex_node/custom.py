"""What the commands do. Resources are passed as the API has them, `properties` and all."""

import base64
import os
import time

from azure.cli.core import azclierror
from knack.log import get_logger

from azext_aks_flex_node._client import POLL_SECONDS, connect, content, member
from azext_aks_flex_node._desired import apply, with_options
from azext_aks_flex_node._errors import Refused, told
from azext_aks_flex_node._validators import identity, secret

CLUSTER_SECONDS = 60  # a cluster that answers needs none of them
ISSUED = ('configUrl', 'configUrlExpires')  # what a machine joins with, and until when
logger = get_logger(__name__)


@with_options
def create_flex_node(cmd, resource_group_name, cluster_name, node_name,
                     auth_method='bootstrapToken', client_id=None, client_secret=None,
                     client_tenant=None, principal_id=None, arc_machine_id=None,
                     output_config_url=False, timeout=CLUSTER_SECONDS, endpoint=None,
                     no_wait=False, **wanted):
    if no_wait and output_config_url:
        raise azclierror.MutuallyExclusiveArgumentError(
            '--output-config-url needs what --no-wait does not wait for.',
            'Ask for it later: az aks flex-node get-config-url')
    identity(auth_method, client_id=client_id, client_secret=client_secret,
             client_tenant=client_tenant, principal_id=principal_id,
             arc_machine_id=arc_machine_id)
    node = {'properties': {
        'azureAuth': _identity(auth_method, client_id, client_tenant, principal_id,
                               arc_machine_id,
                               secret(auth_method, client_id, client_secret)),
    }}
    apply(node['properties'], wanted)
    with told():
        client = connect(cmd, endpoint)
        url = client.node(resource_group_name, cluster_name, node_name)
        node = _put(client, url, node, no_wait=no_wait, seconds=timeout)
        if output_config_url:
            issued = _issue(client, url, timeout)
            member(node, 'properties').update((key, issued[key]) for key in ISSUED)
    return node


def _identity(method, client_id, client_tenant, principal_id, arc_machine_id, client_secret):
    auth = {'method': method}
    members = {
        'servicePrincipal': {'clientId': client_id, 'clientSecret': client_secret,
                             'clientTenant': client_tenant},
        'managedIdentity': {'clientId': client_id, 'principalId': principal_id},
        'arc': {'machineResourceId': arc_machine_id},
    }.get(method, {})
    members = {key: value for key, value in members.items() if value}
    if members:
        auth[method] = members
    return auth


def _put(client, url, node, no_wait=False, seconds=CLUSTER_SECONDS, headers=None):
    """PUTs a node and waits until it is made, but not for ever for a cluster that is down."""
    answer = client.send('PUT', url, body=node, headers=headers)
    if no_wait:
        return None
    node = content(answer)
    if member(node, 'properties').get('provisioningState') in ('Creating', 'Updating'):
        node = client.finish(answer, seconds)
        if node is None:
            raise _down(url, "'{}' is stored, and", 'wait --created')
    return node


def _down(url, what, command):
    """The cluster is down; what comes later, and the command that it can be seen with."""
    parts = url.split('/')
    return azclierror.AzureResponseError(
        f"The cluster '{parts[8]}' does not answer the resource provider, so "
        f'{what.format(parts[10])} is made when the cluster is back.',
        f'az aks flex-node {command} -g {parts[4]} -c {parts[8]} -n {parts[10]}')


def _issue(client, url, seconds):
    """A URL for a machine: the one in force, or another in place of one that was used."""
    try:
        return _action(client, url, 'listConfigUrl', seconds)
    except Refused as ex:
        if ex.code != 'NoConfigUrl':
            raise
        return _action(client, url, 'regenerateToken', seconds)


def _action(client, url, action, seconds):
    """What an action that ends with a URL has issued."""
    answer = client.send('POST', f'{url}/{action}', body={})
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
def update_flex_node(instance, client_id=None, client_secret=None, client_tenant=None,
                     **wanted):
    properties = instance['properties']
    if client_id or client_secret or client_tenant:
        auth = properties.get('azureAuth') or {}
        if auth.get('method') != 'servicePrincipal':
            raise azclierror.InvalidArgumentValueError(
                'The node has no service principal: --client-id, --client-secret and '
                '--client-tenant are for one.')
        section = auth.setdefault('servicePrincipal', {})
        section.update({key: value for key, value in (
            ('clientId', client_id), ('clientSecret', client_secret),
            ('clientTenant', client_tenant)) if value})
    apply(properties, wanted)
    return instance


def put_flex_node(cmd, resource_group_name, cluster_name, node_name, parameters,
                  timeout=None, endpoint=None, no_wait=False):
    etag = parameters.get('eTag')
    with told():
        client = connect(cmd, endpoint)
        return _put(client, client.node(resource_group_name, cluster_name, node_name),
                    parameters, no_wait=no_wait, seconds=timeout or CLUSTER_SECONDS,
                    headers={'If-Match': etag} if etag else None)


def list_flex_nodes(cmd, resource_group_name, cluster_name, filter_expression=None,
                    endpoint=None):
    params = {'$filter': filter_expression} if filter_expression else None
    with told():
        client = connect(cmd, endpoint)
        return list(client.pages(
            client.cluster(resource_group_name, cluster_name) + '/flexNodeConfig', params))


def delete_flex_node(cmd, resource_group_name, cluster_name, node_name, endpoint=None):
    with told():
        client = connect(cmd, endpoint)
        client.send('DELETE', client.node(resource_group_name, cluster_name, node_name))


def rotate_token(cmd, resource_group_name, cluster_name, node_name, timeout=CLUSTER_SECONDS,
                 endpoint=None):
    with told():
        client = connect(cmd, endpoint)
        return _action(client, client.node(resource_group_name, cluster_name, node_name),
                       'regenerateToken', timeout)


def get_config_url(cmd, resource_group_name, cluster_name, node_name, timeout=CLUSTER_SECONDS,
                   endpoint=None):
    with told():
        client = connect(cmd, endpoint)
        issued = _action(client, client.node(resource_group_name, cluster_name, node_name),
                         'listConfigUrl', timeout)
    logger.warning('Whoever has this URL can join a machine as %s, until %s.', node_name,
                   issued['configUrlExpires'])
    return issued['configUrl']


def list_history(cmd, resource_group_name, cluster_name, node_name, endpoint=None):
    with told():
        client = connect(cmd, endpoint)
        found = client.read('POST', client.node(resource_group_name, cluster_name, node_name) +
                            '/listHistory', body={})
        return member(found, 'revisions')


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
            'Say what to wait for: --created, --updated, --deleted, --exists, --ready or '
            '--custom.')
    with told():
        client = connect(cmd, endpoint)
        url = client.node(resource_group_name, cluster_name, node_name)
        end = time.monotonic() + timeout
        while not _reached(client, url, ready, created or updated, deleted, exists, custom):
            if time.monotonic() + interval > end:
                raise azclierror.AzureResponseError(
                    f"'{node_name}' was not what was waited for within {timeout} seconds.",
                    'az aks flex-node show tells its conditions.')
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
        resolved = conditions.get('Resolved', {}).get('message', 'its condition Resolved tells why')
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
                       file=None, timeout=600, endpoint=None, no_wait=False):
    if kind == 'supportBundle' and not file and not no_wait:
        raise azclierror.RequiredArgumentMissingError(
            'Say where the encrypted support bundle is to be written: --file.')
    with told():
        client = connect(cmd, endpoint)
        url = client.node(resource_group_name, cluster_name, node_name)
        asked = client.read('POST', f'{url}/diagnose', body={'kind': kind})
        if no_wait:
            return None
        end = time.monotonic() + timeout
        while member(asked, 'state') == 'Requested':
            if time.monotonic() > end:
                raise azclierror.AzureResponseError(
                    f"'{node_name}' has not answered within {timeout} seconds. It may answer "
                    'later, within a day.', 'az aks flex-node show tells when it was seen last.')
            time.sleep(POLL_SECONDS)
            asked = client.read('POST', f'{url}/listDiagnosis', body={})
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
