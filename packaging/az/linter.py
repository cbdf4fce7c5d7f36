"""Checks the extension by the rules of azdev's linter; prints what is wrong."""

import os
import re
import shlex
import sys

from azure.cli.core import get_default_cli
from azure.cli.core.commands.events import EVENT_INVOKER_PRE_LOAD_ARGUMENTS
from azure.cli.core.file_util import create_invoker_and_load_cmds_and_args, get_all_help
from knack.help_files import helps

GROUP = 'aks flex-node'
# What az itself adds.
OWN = ('cmd', 'no_wait', 'yes', 'ids', 'properties_to_set', 'properties_to_add',
       'properties_to_remove')


def main():
    cli = get_default_cli()
    # others' commands are others' matter, and not all of Debian's can be loaded
    cli.register_event(EVENT_INVOKER_PRE_LOAD_ARGUMENTS, only_ours)
    create_invoker_and_load_cmds_and_args(cli)
    loader = cli.invocation.commands_loader
    table = {k: v for k, v in loader.command_table.items() if k.startswith(GROUP + ' ')}
    problems = []
    if not table:
        problems.append('there are no commands')
    for name, command in sorted(table.items()):
        problems += [f'{name}: {p}' for p in check_command(name, command)]
    with open(os.devnull, 'w', encoding='utf-8') as quiet:
        out, sys.stdout = sys.stdout, quiet
        shown = {h.command for h in get_all_help(cli)}
        sys.stdout = out
    for entry, text in helps.items():
        if entry.startswith(GROUP) and entry not in table and entry != GROUP:
            problems.append(f'{entry}: has help and is no command')
    problems += [f'{n}: has no help that can be shown' for n in table if n not in shown]
    problems += check_examples(cli, table)
    print('\n'.join(problems), end='')


def only_ours(_, commands_loader=None, **__):
    for table in (commands_loader.command_table, commands_loader.cmd_to_loader_map):
        for name in [n for n in table if not n.startswith(GROUP + ' ')]:
            del table[name]


def check_command(name, command):
    if name not in helps:
        yield 'has no help'
    for dest, argument in command.arguments.items():
        settings = argument.type.settings
        options = [o for o in settings.get('options_list') or [] if isinstance(o, str)]
        if dest in OWN or not options:
            continue
        if not settings.get('help'):
            yield f'{options} has no help'
        if min(len(o) for o in options) > 22:
            yield f'{options} is too long'
        for option in options:
            if not option.startswith('-') or '_' in option or re.match('^-[^-].+', option):
                yield f'{option} is no proper option'
        if name.endswith(' update') and settings.get('default') is not None:
            yield f'{options} has a default'
    if name.endswith(' list') and 'ids' in command.arguments:
        yield 'has --ids'
    if name.endswith(' delete') and not command.confirmation:
        yield 'does not ask'


def check_examples(cli, table):
    """Each example is a command that az's own parser takes."""
    import yaml
    for name in table:
        for example in yaml.safe_load(helps[name]).get('examples') or []:
            words = shlex.split(example['text'])
            if words[:1] != ['az'] or ' '.join(words[1:4]) != name:
                yield f"{name}: the example is of another command: {example['text']}"
                continue
            words = [w if not w.startswith('@') else 'secret' for w in words[1:]]
            try:
                cli.invocation.parser.parse_args(words)
            except SystemExit:
                yield f"{name}: the example does not parse: {example['text']}"
    if not any('examples' in helps[name] for name in table):
        yield 'there are no examples'


main()
