"""Options of what a node is to be like, and where the API has them.

options.json is their table, by the names of arguments. Of several places it is the one below the
method of azureAuth.
"""

import functools
import inspect
import json
import pathlib

from azure.cli.core.azclierror import MutuallyExclusiveArgumentError

OPTIONS = json.loads(pathlib.Path(__file__).with_name('options.json').read_text(encoding='utf-8'))


def with_options(function):
    """Gives a function all of these options; az reads them out of its signature."""
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
            for name in OPTIONS]

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    wrapper.__signature__ = signature.replace(parameters=own + more)
    return wrapper


def apply(properties, given):
    """Puts options where the API has them; what was not given remains as it is."""
    for option, value in given.items():
        if value is None:
            continue
        *parents, last = _place(option, properties).split('.')
        section = properties
        for parent in parents:
            section = section.setdefault(parent, {})
        if value in ({}, [], ''):  # given, and empty: it is taken away
            section.pop(last, None)
        else:
            section[last] = value


def _place(option, properties):
    """Where an option is. One that the method of a node has no use for is refused."""
    places = OPTIONS[option]['places'].split()
    if not places[0].startswith('azureAuth.'):
        return places[0]
    method = (properties.get('azureAuth') or {}).get('method', 'bootstrapToken')
    for place in places:
        if place.split('.')[1] == method:
            return place
    methods = ' or '.join(place.split('.')[1] for place in places)
    raise MutuallyExclusiveArgumentError(
        f"--{option.replace('_', '-')} goes with --auth-method {methods} only.",
        f'The method of the node is {method}.')
