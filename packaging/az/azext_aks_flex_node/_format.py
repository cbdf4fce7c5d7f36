"""Tables. A row fits 120 columns."""

from collections import OrderedDict
from datetime import datetime, timezone


def _condition(node, kind):
    status = node.get('properties', {}).get('status') or {}
    for condition in status.get('conditions') or []:
        if condition.get('type') == kind:
            good = condition.get('status') == 'True'
            return not good and condition.get('reason') or condition.get('status', '')
    return ''


def _row(*cells):
    """A row of (name, value, width). Texts, which nodes report, have no control characters."""
    row = OrderedDict()
    for name, value, width in cells:
        text = ''.join(c if c.isprintable() else '?' for c in str('' if value is None else value))
        row[name] = text if len(text) <= width else text[:width - 3] + '...'
    return row


def _age(time):
    """How long ago a time (UTC) is: 40s, 12m, 3h, 5d."""
    try:
        then = datetime.strptime(time[:19], '%Y-%m-%dT%H:%M:%S').replace(tzinfo=timezone.utc)
    except (TypeError, ValueError):
        return time
    seconds = (datetime.now(timezone.utc) - then).total_seconds()
    for unit, size in (('d', 86400), ('h', 3600), ('m', 60)):
        if seconds >= size:
            return f'{int(seconds // size)}{unit}'
    return f'{max(0, int(seconds))}s'


def node_table(node):
    """One row: what is wanted, and what is."""
    if not node:
        return []
    properties = node.get('properties', {})
    status = properties.get('status') or {}
    wanted = (properties.get('config') or {}).get('kubernetes') or {}
    return _row(
        ('Name', node.get('name'), 36), ('State', properties.get('provisioningState'), 9),
        ('Ready', _condition(node, 'Ready'), 18), ('UpToDate', _condition(node, 'UpToDate'), 18),
        ('Kubernetes', (properties.get('versions') or {}).get('kubernetes') or
         wanted.get('version'), 10),
        ('Runs', (status.get('components') or {}).get('kubelet'), 9),
        ('LastSeen', _age(status.get('lastSeen')), 8))


def nodes_table(nodes):
    return [node_table(node) for node in nodes]


def history_table(revisions):
    """One row for each configuration, with marks for what it is now."""
    marks = ('desired', 'assigned', 'applied', 'failed')
    return [_row(
        ('ConfigVersion', revision.get('configVersion'), 13),
        ('Created', revision.get('created'), 20), ('Reason', revision.get('reason'), 8),
        ('Is', ' '.join(mark for mark in marks if revision.get(mark)), 31),
        ('Changed', ' '.join(revision.get('changed') or []), 40)) for revision in revisions]


def diff_table(diff):
    """One row for each setting that differs."""
    return [_row(('Setting', change.get('path'), 40), ('From', change.get('from'), 32),
                 ('To', change.get('to'), 32), ('Disruption', change.get('disruption'), 10))
            for change in diff.get('changes') or []]


def changes_table(changes):
    """One row for each change that nodes wait for, try or have failed."""
    counts = ('waiting', 'trying', 'good', 'failed', 'unknown')
    return [_row(
        ('Change', change.get('change'), 12),
        *((count.capitalize(), change.get(count), 7) for count in counts),
        ('Held', change.get('held'), 14), ('Settings', ' '.join(change.get('settings') or []), 40))
        for change in changes]


def summary_table(summary):
    """One row for each count that is not zero, and one for each change."""
    def rows():
        yield 'nodes', '', summary['nodes'], ''
        for state in summary.get('states') or []:
            yield 'state', state['state'], state['nodes'], ''
        for version in summary.get('versions') or []:
            yield ('version', f"{version['component']} {version['version']}", version['running'],
                   f"{version['wanted']} wanted" if version['wanted'] else '')
        for condition in summary.get('conditions') or []:
            if condition['status'] != 'True':
                yield ('condition', f"{condition['type']} {condition['status']}",
                       condition['nodes'], condition.get('reason'))
        for change in summary.get('changes') or []:
            progress = ', '.join(f'{change[count]} {count}' for count in (
                'trying', 'good', 'failed', 'unknown') if change[count])
            held = f"held: {change['held']}" if change.get('held') else ''
            yield ('waiting', f"change {change['change']}", change['waiting'],
                   '; '.join(text for text in (held, progress) if text))
    return [_row(('Of', of, 9), ('Is', what, 48), ('Nodes', nodes, 6), ('More', more, 51))
            for of, what, nodes, more in rows() if nodes or more or of == 'nodes']


def paused_table(resource):
    """One row: whether changes of a node, or of a cluster, wait."""
    properties = resource.get('properties', {})
    policy = properties.get('upgradePolicy') or properties.get('rolloutPolicy') or {}
    return _row(('Name', resource.get('name'), 63),
                ('Kind', 'node' if '/flexNodeConfig' in resource.get('type', '') else 'cluster', 7),
                ('Paused', policy.get('paused', False), 6))


def issued_table(issued):
    """One row. The URL is too long for a table: -o tsv or -o json has it."""
    return _row(('ConfigVersion', issued.get('configVersion'), 13),
                ('Expires', issued.get('configUrlExpires'), 20),
                ('ConfigUrl', '-o json shows it', 16))


def findings_table(diagnosis):
    """One row for each thing that is wrong."""
    return [_row(('Verdict', finding.get('verdict'), 7), ('Condition', finding.get('type'), 24),
                 ('Owner', finding.get('owner'), 13), ('Message', finding.get('message'), 60))
            for finding in diagnosis.get('findings') or []
            if finding.get('verdict') in ('error', 'warning')]
