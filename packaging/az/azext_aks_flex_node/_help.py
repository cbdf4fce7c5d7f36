"""Help."""

from knack.help_files import helps

helps['aks flex-node'] = """
type: group
short-summary: Manage machines outside Azure as nodes of an AKS cluster.
"""

helps['aks flex-node create'] = """
type: command
short-summary: Create or replace a flex node, and get the URL that its machine joins with.
long-summary: >-
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
  - name: Ask a resource provider of your own.
    text: >-
        az aks flex-node create -g my-rg --cluster my-cluster --name edge-1
        --endpoint https://flexnode.example.org:8447
"""

helps['aks flex-node update'] = """
type: command
short-summary: Change a flex node. A machine that follows it applies the change by itself.
examples:
  - name: Have a node run another version of Kubernetes.
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
  - name: Rotate the secret of the service principal.
    text: >-
        az aks flex-node update -g my-rg --cluster my-cluster --name edge-1
        --client-secret @secret.txt
"""

helps['aks flex-node show'] = """
type: command
short-summary: Show a flex node with its configuration and status.
examples:
  - name: Show how a node is.
    text: az aks flex-node show -g my-rg --cluster my-cluster --name edge-1 -o table
"""

helps['aks flex-node list'] = """
type: command
short-summary: List the flex nodes of a cluster.
examples:
  - name: List those that have failed.
    text: >-
        az aks flex-node list -g my-rg --cluster my-cluster --filter "state eq 'failed'"
        -o table
"""

helps['aks flex-node delete'] = """
type: command
short-summary: Delete a flex node. A machine that follows it gives itself back.
examples:
  - name: Delete a node without being asked.
    text: az aks flex-node delete -g my-rg --cluster my-cluster --name edge-1 --yes
"""

helps['aks flex-node wait'] = """
type: command
short-summary: Wait until a flex node is in some state.
examples:
  - name: Wait until the machine has joined and its Node is Ready.
    text: az aks flex-node wait -g my-rg --cluster my-cluster --name edge-1 --ready
  - name: Wait until the machine runs what it is to run.
    text: >-
        az aks flex-node wait -g my-rg --cluster my-cluster --name edge-1
        --custom "properties.status.conditions[?type=='UpToDate'].status|[0]=='True'"
"""

helps['aks flex-node rotate-token'] = """
type: command
short-summary: Revoke the token and URL of a flex node, and make new ones.
long-summary: The URL is a secret until a machine has used it, for 24 hours at most.
examples:
  - name: Get a new URL for a machine that has failed to join.
    text: >-
        az aks flex-node rotate-token -g my-rg --cluster my-cluster --name edge-1
        --query configUrl -o tsv
"""

helps['aks flex-node get-config-url'] = """
type: command
short-summary: Show the URL that a machine can join with.
long-summary: Once a machine has used it there is none; `rotate-token` makes another.
examples:
  - name: Get the URL alone.
    text: >-
        az aks flex-node get-config-url -g my-rg --cluster my-cluster --name edge-1 -o tsv
"""

helps['aks flex-node history'] = """
type: command
short-summary: List the configurations of a flex node that are kept, the newest first.
examples:
  - name: See what has changed.
    text: az aks flex-node history -g my-rg --cluster my-cluster --name edge-1 -o table
"""

helps['aks flex-node rollback'] = """
type: command
short-summary: Make a flex node what it was in a configuration that is kept.
examples:
  - name: Go back to a version that `history` shows.
    text: >-
        az aks flex-node rollback -g my-rg --cluster my-cluster --name edge-1
        --config-version 1795276800
"""

helps['aks flex-node diagnose'] = """
type: command
short-summary: Ask the machine of a flex node what is wrong with it.
long-summary: |
    The machine answers within its policy (/etc/aks-flex-node/policy.json). A support bundle is
    encrypted by age to the key that the policy names; open it with `age --decrypt -i IDENTITY`.
examples:
  - name: See what doctor finds on the machine.
    text: az aks flex-node diagnose -g my-rg --cluster my-cluster --name edge-1 -o table
  - name: Get a support bundle.
    text: >-
        az aks flex-node diagnose -g my-rg --cluster my-cluster --name edge-1
        --kind supportBundle --file edge-1.tar.gz.age
"""
