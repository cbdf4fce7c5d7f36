"""Help."""

from knack.help_files import helps

helps['aks flex-node'] = """
type: group
short-summary: Manage machines outside Azure as nodes of an AKS cluster.
"""

helps['aks flex-node create'] = """
type: command
short-summary: Create a flex node and the URL that its machine joins with.
long-summary: >-
    An existing node is not changed: use `update` to change single settings, or `--replace`.
    On the machine: `sudo aks-flex-node agent --config-url-file FILE`, or - for standard input.
examples:
  - name: Create a flex node and keep the URL that the machine joins with.
    text: >-
        az aks flex-node create -g my-rg --cluster my-cluster --name edge-1
        --auth-method bootstrapToken --output-config-url --query properties.configUrl -o tsv
  - name: A node that follows its resource, with a service principal.
    text: >-
        az aks flex-node create -g my-rg --cluster my-cluster --name edge-1
        --auth-method servicePrincipal --client-id 11111111-2222-3333-4444-555555555555
        --client-secret @secret.txt --labels site=oslo line=7 --max-pods 50
  - name: A node of an Arc machine, whose changes wait for the weekend.
    text: >-
        az aks flex-node create -g my-rg --cluster my-cluster --name edge-1 --auth-method arc
        --maintenance-window days=Saturday,Sunday start=22:00 duration=PT4H
  - name: Use your own resource provider.
    text: >-
        az aks flex-node create -g my-rg --cluster my-cluster --name edge-1
        --endpoint https://flexnode.example.org:8447
"""

helps['aks flex-node update'] = """
type: command
short-summary: Change a flex node. A machine that follows it applies the change by itself.
long-summary: >-
    The provider stores a client secret without testing it. The machine tests it before use: with
    a token from Microsoft Entra ID and, where the secret is used, with a request to the API
    server and a poll. If one of them is refused, the machine keeps the previous secret and
    reports the change as failed; without an answer the change waits. `--follow false` asks for
    confirmation: only a new URL on the machine makes it follow again.
examples:
  - name: Change the Kubernetes version of a node.
    text: >-
        az aks flex-node update -g my-rg --cluster my-cluster --node edge-1
        --kubernetes-version 1.35.4
  - name: Let pods reach the metadata service of the machine's cloud.
    text: >-
        az aks flex-node update -g my-rg --cluster my-cluster --name edge-1
        --metadata-access allow
  - name: Change one label of many.
    text: >-
        az aks flex-node update -g my-rg --cluster my-cluster --name edge-1
        --set properties.nodeConfig.labels.site=bergen
  - name: Connect the machine to Arc automatically when it joins.
    text: >-
        az aks flex-node update -g my-rg --cluster my-cluster --name edge-1 --auth-method arc
        --onboarding-client-id 11111111-2222-3333-4444-555555555555
        --onboarding-secret @secret.txt --auto-role-assignment true --use-azure-auth true
        --kubelet-credential token
  - name: Rotate the secret of the service principal.
    text: >-
        az aks flex-node update -g my-rg --cluster my-cluster --name edge-1
        --client-secret @secret.txt
"""

helps['aks flex-node show'] = """
type: command
short-summary: Show a flex node with its configuration and status.
examples:
  - name: Show the state of a node.
    text: az aks flex-node show -g my-rg --cluster my-cluster --name edge-1 -o table
"""

helps['aks flex-node list'] = """
type: command
short-summary: List the flex nodes of a cluster.
examples:
  - name: List the nodes that have failed.
    text: >-
        az aks flex-node list -g my-rg --cluster my-cluster --filter "state eq 'failed'"
        -o table
"""

helps['aks flex-node delete'] = """
type: command
short-summary: Delete a flex node. A machine that follows it leaves the cluster and is restored.
examples:
  - name: Delete a node without confirmation.
    text: az aks flex-node delete -g my-rg --cluster my-cluster --name edge-1 --yes
  - name: Delete the node of a machine that was stolen.
    text: >-
        az aks flex-node delete -g my-rg --cluster my-cluster --name edge-1 --revoke-now
"""

helps['aks flex-node wait'] = """
type: command
short-summary: Wait until a flex node reaches a state.
examples:
  - name: Wait until the machine has joined and its Node is Ready.
    text: az aks flex-node wait -g my-rg --cluster my-cluster --name edge-1 --ready
  - name: Wait until the machine runs the desired configuration.
    text: >-
        az aks flex-node wait -g my-rg --cluster my-cluster --name edge-1
        --custom "properties.status.conditions[?type=='UpToDate'].status|[0]=='True'"
"""

helps['aks flex-node rotate-token'] = """
type: command
short-summary: Revoke the token and URL of a flex node, and create new ones.
long-summary: The URL is a secret until a machine has used it, for 24 hours at most.
examples:
  - name: Get a new URL for a machine that could not join.
    text: >-
        az aks flex-node rotate-token -g my-rg --cluster my-cluster --name edge-1
        --query configUrl -o tsv
  - name: Replace a machine that may be compromised.
    text: >-
        az aks flex-node rotate-token -g my-rg --cluster my-cluster --name edge-1
        --revoke-now --query configUrl -o tsv
"""

helps['aks flex-node get-config-url'] = """
type: command
short-summary: Show the URL that a machine can join with.
long-summary: It can be used once; `rotate-token` creates another.
examples:
  - name: Get only the URL.
    text: >-
        az aks flex-node get-config-url -g my-rg --cluster my-cluster --name edge-1 -o tsv
"""

helps['aks flex-node history'] = """
type: command
short-summary: List the stored configurations of a flex node, newest first.
examples:
  - name: See what has changed.
    text: az aks flex-node history -g my-rg --cluster my-cluster --name edge-1 -o table
"""

helps['aks flex-node diff'] = """
type: command
short-summary: Compare two configurations of a flex node, and show whether it restarts or drains.
long-summary: >-
    `disruption` is what the machine does for a setting: none, restart (kubelet or containerd
    restarts, and the pods go on), or drain (the pods move to other nodes first).
examples:
  - name: See what a machine is about to change.
    text: az aks flex-node diff -g my-rg --cluster my-cluster --name edge-1 -o table
  - name: Check in a script whether pods will move.
    text: >-
        az aks flex-node diff -g my-rg --cluster my-cluster --name edge-1
        --query disruption -o tsv
"""

helps['aks flex-node summary'] = """
type: command
short-summary: Count the flex nodes of a cluster, and show the progress of each change.
examples:
  - name: Look at a fleet.
    text: az aks flex-node summary -g my-rg --cluster my-cluster -o table
  - name: See why a change waits.
    text: >-
        az aks flex-node summary -g my-rg --cluster my-cluster
        --query "changes[?held].[change, held, settings]"
"""

helps['aks flex-node allow-versions'] = """
type: command
short-summary: Continue a change that is held because nodes have failed it or do not answer.
examples:
  - name: Let two more nodes fail a change within four hours.
    text: >-
        az aks flex-node allow-versions -g my-rg --cluster my-cluster --change ab12cd34ef56
        --failures 2 --for PT4H
"""

helps['aks flex-node pause'] = """
type: command
short-summary: Pause the changes of a cluster or of one flex node.
long-summary: >-
    No change that restarts or drains a node starts; one that has started is finished. Labels,
    taints, credentials and the address of the API server still reach the nodes, and new machines
    join. The machines still repair drift: `sudo aks-flex-node pause` on a machine stops that too.
examples:
  - name: Stop the changes of a cluster.
    text: az aks flex-node pause -g my-rg --cluster my-cluster
  - name: Keep one node as it is.
    text: az aks flex-node pause -g my-rg --cluster my-cluster --name edge-1
"""

helps['aks flex-node resume'] = """
type: command
short-summary: End a pause of a cluster or of one flex node.
long-summary: >-
    The pauses of a cluster and of a node are independent. A pause that was started on a machine
    must be ended there.
examples:
  - name: Resume the changes of a cluster.
    text: az aks flex-node resume -g my-rg --cluster my-cluster
  - name: Resume the changes of one node.
    text: az aks flex-node resume -g my-rg --cluster my-cluster --name edge-1
"""

helps['aks flex-node replace'] = """
type: command
short-summary: Replace the machine of a flex node, keeping its name.
long-summary: >-
    Returns the URL that the new machine joins with, and the command to run there. The
    configuration is kept. The access of the old machine is revoked at once and its Node is
    deleted: if it still works, first run `sudo aks-flex-node unbootstrap` on it, which drains it.
    If the identity belongs to the machine (arc, managedIdentity), set the new one first:
    `update --arc-machine-id` or `update --principal-id`.
examples:
  - name: Print only the URL, for the standard input of the command on the new machine.
    text: >-
        az aks flex-node replace -g my-rg --cluster my-cluster --name edge-1 --yes
        --query configUrl -o tsv
"""

helps['aks flex-node rollback'] = """
type: command
short-summary: Roll a flex node back to a stored configuration.
examples:
  - name: Roll back to a version that `history` shows.
    text: >-
        az aks flex-node rollback -g my-rg --cluster my-cluster --name edge-1
        --config-version 1795276800
"""

helps['aks flex-node enable'] = """
type: command
short-summary: Prepare a cluster for flex nodes.
long-summary: >-
    Runs `flexnode-rp cluster prepare` with your kubeconfig of the cluster: it shows what changes,
    asks for confirmation, applies roles, admission policies and kube-proxy, and reports what is
    missing and who can add it. A second run with the same options changes nothing; with others it
    removes what they no longer ask for. Exits with 2 if something is missing.
examples:
  - name: See what would change.
    text: az aks flex-node enable -g my-rg -n my-cluster --dry-run
  - name: Prepare a cluster whose provider is an identity in Entra.
    text: >-
        az aks flex-node enable -g my-rg -n my-cluster --yes
        --provider 11111111-2222-3333-4444-555555555555
"""

helps['aks flex-node disable'] = """
type: command
short-summary: Remove the objects that `enable` has added to a cluster.
examples:
  - name: Remove them after confirmation.
    text: az aks flex-node disable -g my-rg -n my-cluster
"""

helps['aks flex-node diagnose'] = """
type: command
short-summary: Diagnose the machine of a flex node.
long-summary: |
    The machine answers within its policy (/etc/aks-flex-node/policy.json). A support bundle is
    encrypted by age to the key that the policy names; open it with `age --decrypt -i IDENTITY`.
examples:
  - name: Show the findings of doctor on the machine.
    text: az aks flex-node diagnose -g my-rg --cluster my-cluster --name edge-1 -o table
  - name: Get a support bundle.
    text: >-
        az aks flex-node diagnose -g my-rg --cluster my-cluster --name edge-1
        --kind supportBundle --file edge-1.tar.gz.age
"""
