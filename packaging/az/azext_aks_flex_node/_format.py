"""Tables."""

from collections import OrderedDict


def _condition(node, kind):
    status = node.get('properties', {}).get('status') or {}
    for condition in status.get('conditions') or []:
        if condition.get('type') == kind:
            reason = condition.get('reason')
            if condition.get('status') != 'True' and reason:
                return f"{condition['status']} ({reason})"
            return condition.get('status', '')
    return ''


def _plain(row):
    """A row whose texts, which nodes report, have no control characters."""
    return OrderedDict((name, ''.join(c if c.isprintable() else '?' for c in str(value or '')))
                       for name, value in row.items())


def node_table(node):
    """One row: what is wanted, and what is."""
    if not node:
        return []
    properties = node.get('properties', {})
    status = properties.get('status') or {}
    wanted = (properties.get('config') or {}).get('kubernetes') or {}
    return _plain(OrderedDict([
        ('Name', node.get('name', '')),
        ('State', properties.get('provisioningState', '')),
        ('Ready', _condition(node, 'Ready')),
        ('UpToDate', _condition(node, 'UpToDate')),
        ('Kubernetes', (properties.get('versions') or {}).get('kubernetes') or
         wanted.get('version', '')),
        ('Runs', (status.get('components') or {}).get('kubelet', '')),
        ('ConfigVersion', properties.get('configVersion', '')),
        ('LastSeen', status.get('lastSeen', '')),
    ]))


def nodes_table(nodes):
    return [node_table(node) for node in nodes]


def history_table(revisions):
    """One row for each configuration, with marks for what it is now."""
    marks = ('desired', 'assigned', 'applied', 'failed')
    return [_plain(OrderedDict([
        ('ConfigVersion', revision.get('configVersion', '')),
        ('Created', revision.get('created', '')),
        ('Reason', revision.get('reason', '')),
        ('Is', ' '.join(mark for mark in marks if revision.get(mark))),
        ('Changed', ' '.join(revision.get('changed') or [])),
    ])) for revision in revisions]


def findings_table(diagnosis):
    """One row for each thing that is wrong."""
    return [_plain(OrderedDict([
        ('Verdict', finding.get('verdict', '')), ('Condition', finding.get('type', '')),
        ('Owner', finding.get('owner', '')), ('Message', finding.get('message', '')[:60]),
    ])) for finding in diagnosis.get('findings') or []
            if finding.get('verdict') in ('error', 'warning')]
