#!/bin/bash
# What a plain script does to make this machine a node: the same eleven steps, one after the other, with curl, tar and systemctl.
# It is what `flexlab bench join` compares with. Configuration files are ready in $FILES.
set -euo pipefail

get() { # get URL FILE: download, then check against the published digest
  curl -fsSL -o "$2" "$MIRROR/$1"
  echo "$3  $2" | sha256sum -c --quiet
}

# 1 arc: not used. 2 services
systemctl stop kubelet containerd 2>/dev/null || true

# 3 directories
mkdir -p /etc/kubernetes/{certs,manifests,volumeplugins,kubelet.conf.d} /etc/cni/net.d /opt/cni/bin /var/lib/kubelet /etc/containerd \
  /var/log/pods /etc/node-problem-detector /usr/local/sbin
work=$(mktemp -d)

# 4 system
swapoff -a
cp "$FILES/modules.conf" /etc/modules-load.d/
modprobe -a overlay br_netfilter 2>/dev/null || true
cp "$FILES/sysctl.conf" /etc/sysctl.d/99-node.conf
sysctl -q -p /etc/sysctl.d/99-node.conf

# 5 runc
get "$RUNC" "$work/runc" "$RUNC_SHA256"
install -m 0755 "$work/runc" /usr/local/sbin/runc

# 6 containerd
get "$CONTAINERD" "$work/containerd.tar.gz" "$CONTAINERD_SHA256"
tar -C /usr/local -xzf "$work/containerd.tar.gz"
cp "$FILES/config.toml" /etc/containerd/config.toml
cp "$FILES/containerd.service" /etc/systemd/system/

# 7 kubernetes
get "$KUBECTL" /usr/local/bin/kubectl "$KUBECTL_SHA256"
get "$KUBELET" /usr/local/bin/kubelet "$KUBELET_SHA256"
get "$KUBEADM" /usr/local/bin/kubeadm "$KUBEADM_SHA256"
chmod 0755 /usr/local/bin/{kubectl,kubelet,kubeadm}

# 8 cni
get "$CNI" "$work/cni.tgz" "$CNI_SHA256"
tar -C /opt/cni/bin -xzf "$work/cni.tgz"

# 9 credentials
cp "$FILES/ca.crt" /etc/kubernetes/certs/
install -m 0600 "$FILES/bootstrap-kubeconfig" /var/lib/kubelet/bootstrap-kubeconfig

# 10 kubelet, and the node problem detector
cp "$FILES/kubelet.yaml" /var/lib/kubelet/config.yaml
cp "$FILES/registration.env" /etc/kubernetes/aks-flex-node-registration.env
cp "$FILES/kubelet.service" /etc/systemd/system/
get "$NPD" "$work/npd.tar.gz" "$NPD_SHA256"
tar -C /usr/local -xzf "$work/npd.tar.gz" bin/node-problem-detector
tar -C /etc/node-problem-detector --strip-components=1 -xzf "$work/npd.tar.gz" config/kernel-monitor.json
cp "$FILES/node-problem-detector.service" /etc/systemd/system/

# 11 start; the pod network follows when the cluster has allocated its subnet
systemctl daemon-reload
systemctl enable -q --now containerd kubelet
kubectl() { /usr/local/bin/kubectl --kubeconfig /var/lib/kubelet/kubeconfig "$@" 2>/dev/null; }
until cidr=$(kubectl get node "$NODE" -o 'jsonpath={.spec.podCIDR}') && [ -n "$cidr" ]; do sleep 0.2; done
sed "s#POD_CIDR#$cidr#" "$FILES/conflist" >/etc/cni/net.d/99-node.conflist
systemctl enable -q --now node-problem-detector
rm -rf "$work"
