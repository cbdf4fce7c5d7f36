"""Requests about flexNodeConfig, to Azure Resource Manager or to a provider itself."""

import json

from azure.cli.core.azclierror import InvalidArgumentValueError, RequiredArgumentMissingError
from azure.cli.core.util import ScopedConfig
from azure.core.configuration import Configuration
from azure.core.pipeline import policies
from azure.core.polling import LROPoller
from azure.core.rest import HttpRequest
from azure.mgmt.core import ARMPipelineClient
from azure.mgmt.core.polling.arm_polling import ARMPolling
from knack.log import get_logger

from azext_aks_flex_node._errors import Refused, Strange

API_VERSION = '2026-05-01-preview'
POLL_SECONDS = 2  # where an answer does not tell
logger = get_logger(__name__)


def _name(text):
    """A segment of a URL. With '..' it would name another resource, such as the cluster."""
    if not text.strip('.') or set(text) & set('/\\?#%{}'):
        raise InvalidArgumentValueError(f"'{text}' is not a name.")
    return text


class _Trace(policies.SansIOHTTPPolicy):
    """Tells --debug of requests, without their bodies: secrets and URLs are in them."""

    def on_response(self, request, response):
        answer = response.http_response
        logger.debug('%s %s: %s, request id %s', request.http_request.method,
                     request.http_request.url.split('?')[0], answer.status_code,
                     answer.headers.get('x-ms-request-id'))


class FlexNodeClient:
    """What az puts together with a credential, as it does Azure's own clients."""

    def __init__(self, credential, subscription_id, base_url, endpoint=None, audience=None,
                 **kwargs):
        self.subscription_id = subscription_id
        config = Configuration(**kwargs)
        config.user_agent_policy = policies.UserAgentPolicy(**kwargs)
        config.headers_policy = policies.HeadersPolicy(**kwargs)
        config.proxy_policy = policies.ProxyPolicy(**kwargs)
        config.retry_policy = policies.RetryPolicy(**kwargs)
        config.redirect_policy = policies.RedirectPolicy(permit_redirects=False)
        config.custom_hook_policy = policies.CustomHookPolicy(**kwargs)
        config.logging_policy = _Trace()
        config.http_logging_policy = policies.SansIOHTTPPolicy()
        config.authentication_policy = policies.BearerTokenCredentialPolicy(
            credential, f'{audience}/.default') if audience else kwargs['authentication_policy']
        self._client = ARMPipelineClient(
            base_url=(endpoint or base_url).rstrip('/'), config=config,
            connection_verify=kwargs.get('connection_verify', True))

    def cluster(self, group, cluster):
        return (f'/subscriptions/{self.subscription_id}/resourceGroups/{_name(group)}'
                f'/providers/Microsoft.ContainerService/managedClusters/{_name(cluster)}')

    def node(self, group, cluster, node):
        return f'{self.cluster(group, cluster)}/flexNodeConfig/{_name(node)}'

    def send(self, method, url, body=None, headers=None, params=None):
        """One request; its answer, unless that is an error."""
        if url.startswith('/'):
            params = {'api-version': API_VERSION, **(params or {})}
        request = HttpRequest(method, self._client.format_url(url), params=params, json=body,
                              headers=headers)
        # A conditional request that was carried out, but not answered, would meet its own effect.
        once = {'retry_total': 0} if headers else {}
        answer = self._client.send_request(request, _return_pipeline_response=True, **once)
        status = answer.http_response.status_code
        if status >= 400:
            raise Refused(status, answer.http_response.text())
        if status >= 300:
            raise Strange(f'status {status}')
        return answer

    def read(self, *args, **kwargs):
        """What the answer of a request is; None for nothing."""
        return content(self.send(*args, **kwargs))

    def finish(self, answer, seconds):
        """What an operation ends with; None if it has not ended after some seconds."""
        poller = LROPoller(self._client, answer, content, ARMPolling(
            timeout=POLL_SECONDS, lro_options={'final-state-via': 'location'}))
        poller.wait(seconds)
        return poller.result(0) if poller.done() else None

    def pages(self, url, params=None):
        """All members of a collection, page by page."""
        while url:
            page = self.read('GET', url, params=params)
            yield from member(page, 'value')
            url, params = page.get('nextLink'), None


def content(answer):
    """The object that an answer has; None for nothing."""
    text = answer.http_response.text()
    try:
        found = json.loads(text) if text else None
    except ValueError as ex:
        raise Strange('no JSON') from ex
    if found is not None and not isinstance(found, dict):
        raise Strange('no object')
    return found


def member(found, name):
    """What an answer must have."""
    if found is None or found.get(name) is None:
        raise Strange(f'no {name}')
    return found[name]


def connect(cmd, endpoint=None):
    """A client with the login of az. A provider sees no token for Azure Resource Manager."""
    from azure.cli.core.commands.client_factory import get_mgmt_service_client
    return get_mgmt_service_client(cmd.cli_ctx, FlexNodeClient, endpoint=endpoint,
                                   audience=_audience(cmd.cli_ctx) if endpoint else None)


def _audience(cli_ctx):
    """The application that tokens for the provider are for."""
    with ScopedConfig(cli_ctx.config, True):
        found = cli_ctx.config.get('defaults', 'flexnode_audience', fallback=None)
    if not found:
        raise RequiredArgumentMissingError(
            'The audience of tokens for the endpoint is not set.',
            '`az configure --defaults flexnode_audience=ID`, with the ID that the settings of the '
            'provider have in authentication.audiences')
    return found
