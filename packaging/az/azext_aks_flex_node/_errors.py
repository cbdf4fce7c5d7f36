"""What Azure answers, as one sentence."""

from contextlib import contextmanager
import json

from azure.cli.core import azclierror


def sentence(text):
    """The message of an error in ARM's envelope, and its code; all problems of a request."""
    try:
        error = json.loads(text)['error']
        error.keys()
    except (ValueError, LookupError, TypeError, AttributeError):  # not ARM's
        return text.strip() or 'The response has no reason.', ''
    problems = [f"{d['target']}: {d.get('message', '')}" if d.get('target')
                else d.get('message', '') for d in error.get('details') or []]
    message = '; '.join(p for p in problems if p) or error.get('message', '')
    return ' '.join(message.split()), error.get('code', '')


KINDS = {
    400: azclierror.InvalidArgumentValueError,
    401: azclierror.UnauthorizedError,
    403: azclierror.ForbiddenError,
    404: azclierror.ResourceNotFoundError,
}

ADVICE = {
    'AuthorizationFailed': 'Ask an owner of the cluster for a role that has this action.',
    'NameNotFree': 'If the machine was erased, add --accept-old-certificate.',
    'NoConfigUrl': 'To get another URL: az aks flex-node rotate-token',
    'PreconditionFailed': 'It was changed by another request: try again.',
    'MissingSubscriptionRegistration':
        'az provider register --namespace Microsoft.ContainerService. With --endpoint, instead: az '
        'rest --method post --resource AUDIENCE --url "ENDPOINT/subscriptions/ID/providers/'
        'Microsoft.ContainerService/register?api-version=2021-04-01"',
    'ParentResourceNotFound':
        'Check --cluster-name, --resource-group and --subscription.',
}


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status_code, text):
        self.status_code = status_code
        self.message, self.code = sentence(text)
        super().__init__(self.message)

    def for_people(self):
        kind = KINDS.get(self.status_code, azclierror.AzureResponseError)
        if self.status_code >= 500:
            kind = azclierror.AzureInternalError
        return kind(self.message, ADVICE.get(self.code))


class Strange(Exception):
    """An answer that no resource provider gives."""


@contextmanager
def told():
    """Tells failures as az tells its own: one sentence, an exit code, and what to do."""
    from azure.core.exceptions import (
        AzureError, HttpResponseError, ServiceRequestError, ServiceResponseError)
    try:
        yield
    except Refused as ex:
        raise ex.for_people() from ex
    except HttpResponseError as ex:
        text = ex.response.text() if ex.response is not None else ''
        raise Refused(ex.status_code or 500, text or str(ex.message)).for_people() from ex
    except (ServiceRequestError, ServiceResponseError) as ex:
        raise azclierror.AzureConnectionError(
            f'The endpoint cannot be reached: {ex.message}',
            'Check --endpoint, `az cloud show` and the proxy.') from ex
    except AzureError as ex:
        raise azclierror.AzureResponseError(str(ex)) from ex
    except Strange as ex:
        raise azclierror.AzureResponseError(
            'The endpoint does not answer as a resource provider does.',
            'Check --endpoint and `az cloud show`.') from ex
