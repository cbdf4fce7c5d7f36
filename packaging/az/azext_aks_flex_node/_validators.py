"""Arguments that are more than a word. A function checks the argument of its name."""

import json
from urllib.parse import urlsplit

from azure.cli.core.azclierror import (
    InvalidArgumentValueError, RequiredArgumentMissingError)

FILES = ('kubelet_config',)  # objects in files
WINDOW = ('days', 'start', 'duration', 'utcOffset')


def endpoint(namespace):
    """A token of the login is sent there: never without TLS, and to nothing that is not a host."""
    if not namespace.endpoint:
        namespace.endpoint = None
        return
    try:
        url = urlsplit(namespace.endpoint)
        good = url.scheme == 'https' and url.hostname and not (
            url.username or url.query or url.fragment or url.path.strip('/'))
    except ValueError:
        good = False
    if not good:
        raise InvalidArgumentValueError(
            f"--endpoint '{namespace.endpoint}' is not an https URL of a host.",
            'An example: https://flexnode.example.org:8447')


def pairs(option, values):
    """A dict of words KEY=VALUE; None where the option was not given."""
    if values is None:
        return None
    found = {}
    for word in ' '.join(values).split():
        key, equals, value = word.partition('=')
        if not key or not equals:
            raise InvalidArgumentValueError(f"{option} '{word}' is not KEY=VALUE.")
        found[key] = value
    return found


def labels(namespace):
    namespace.labels = pairs('--labels', namespace.labels)


def node_taints(namespace):
    if namespace.node_taints is not None:
        words = ' '.join(namespace.node_taints).replace(',', ' ').split()
        for word in words:
            if ':' not in word.strip(':'):
                raise InvalidArgumentValueError(
                    f"--node-taints '{word}' is not KEY=VALUE:EFFECT or KEY:EFFECT.")
        namespace.node_taints = words


def registries(namespace):
    if namespace.registries is not None:
        namespace.registries = ' '.join(namespace.registries).split()


def drift_policies(namespace):
    namespace.drift_policies = pairs('--drift-policies', namespace.drift_policies)


def maintenance_window(namespace):
    found = pairs('--maintenance-window', namespace.maintenance_window)
    if not found:
        namespace.maintenance_window = found
        return
    unknown = [key for key in found if key not in WINDOW]
    if unknown or 'start' not in found or 'duration' not in found:
        raise InvalidArgumentValueError(
            '--maintenance-window needs start and duration; days and utcOffset are optional.',
            'An example: --maintenance-window days=Saturday,Sunday start=22:00 duration=PT4H')
    if 'days' in found:
        found['days'] = [day for day in found['days'].split(',') if day]
    namespace.maintenance_window = found


def kubelet_config(namespace):
    """--kubelet-config is the name of a file, as in `az aks nodepool add`, or JSON itself."""
    text = namespace.kubelet_config
    if text is None:
        return
    if not text.lstrip().startswith('{'):
        try:
            with open(text, encoding='utf-8') as f:
                text = f.read()
        except OSError as ex:
            raise InvalidArgumentValueError(
                f"--kubelet-config '{text}' cannot be read: {ex.strerror}.") from ex
    try:
        namespace.kubelet_config = json.loads(text)
    except ValueError as ex:
        raise InvalidArgumentValueError(f'--kubelet-config is not valid JSON: {ex}.') from ex
    if not isinstance(namespace.kubelet_config, dict):
        raise InvalidArgumentValueError('--kubelet-config is not a JSON object.')


def secret(option, client_id, given):
    """The secret of a service principal; asked for where there is a terminal."""
    if given or not client_id:
        return given
    from knack.prompting import NoTTYException, prompt_pass
    try:
        return prompt_pass(f'Client secret of {client_id}: ')
    except NoTTYException as ex:
        raise RequiredArgumentMissingError(
            f'The service principal {client_id} needs {option} without a terminal.',
            f'Write it into a file that only you can read: {option} @FILE') from ex
