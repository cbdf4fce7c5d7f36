package config

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// managedLabel marks the machine as not managed by AKS; without "false" the cloud controller
// deletes the Node when it is not Ready.
const managedLabel, managedValue = "kubernetes.azure.com/managed", "false"

// The values of node.kubelet.swap; "" is SwapOff.
const SwapOff, SwapLimited = "off", "LimitedSwap"

// KeepsSwap reports whether the machine's swap stays on.
func (k Kubelet) KeepsSwap() bool { return k.Swap == SwapLimited }

// evictionSignals are kubelet's signals on Linux (KubeletConfiguration, evictionHard).
var evictionSignals = []string{
	"memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available",
	"imagefs.inodesFree", "containerfs.available", "containerfs.inodesFree",
	"allocatableMemory.available", "pid.available",
}

// IsLabel reports whether kubelet and the API server (NodeRestriction) let a node label itself so.
func IsLabel(key string) bool {
	if len(validation.IsQualifiedName(key)) > 0 {
		return false
	}
	prefix, _, found := strings.Cut(key, "/")
	reserved := found && (within(prefix, "kubernetes.io") || within(prefix, "k8s.io"))
	return !reserved || within(prefix, "kubelet.kubernetes.io") ||
		within(prefix, "node.kubernetes.io") || slices.Contains([]string{
		"kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch",
		"beta.kubernetes.io/os", "beta.kubernetes.io/arch", "beta.kubernetes.io/instance-type",
		"topology.kubernetes.io/region", "topology.kubernetes.io/zone",
		"failure-domain.beta.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
	}, key)
}

func within(name, domain string) bool {
	return name == domain || strings.HasSuffix(name, "."+domain)
}

func isLabelValue(s string) bool { return len(validation.IsValidLabelValue(s)) == 0 }

func cutTaint(s string) (key, value, effect string) {
	pair, effect, _ := strings.Cut(s, ":")
	key, value, _ = strings.Cut(pair, "=")
	return key, value, effect
}

func isTaint(s string) bool {
	key, value, effect := cutTaint(s)
	return len(validation.IsQualifiedName(key)) == 0 && isLabelValue(value) &&
		slices.Contains([]string{"NoSchedule", "PreferNoSchedule", "NoExecute"}, effect)
}

func isQuantity(s string) bool {
	if len(s) > 40 {
		return false
	}
	q, err := resource.ParseQuantity(s)
	return err == nil && q.Sign() >= 0
}

// isThreshold refuses a quantity of 0, with which kubelet does not start; 0% disables a signal.
func isThreshold(s string) bool {
	q, _ := resource.ParseQuantity(s)
	return isPercentage(s) || isQuantity(s) && !q.IsZero()
}

var isPercentage = matches(`(?:100|[0-9]{1,2}(?:\.[0-9]{1,4})?)%`)

// isLogSize refuses 0, which rotates nothing, and 1.5Mi: kubelet fails (Quantity.AsInt64).
func isLogSize(s string) bool {
	if !isQuantity(s) {
		return false
	}
	bytes, whole := new(resource.MustParse(s)).AsInt64()
	return whole && bytes >= 1<<10
}

// isPidsLimit reports whether s is a usable limit: every pod needs some dozens of processes.
func isPidsLimit(s string) bool { return s == "-1" || isWhole(s, 64, 4<<20) }

// isShutdown reports whether s is 0 or a period that kubelet accepts, up to an hour.
func isShutdown(s string) bool {
	d, err := time.ParseDuration(s)
	return err == nil && (d == 0 || time.Second <= d && d <= time.Hour)
}

func checkNode(c Config, r *report) {
	if v := c.Node.Labels[managedLabel]; v != managedValue {
		if managed := member("node.labels", managedLabel); !r.spoiled(managed) {
			r.add(managed, show(v), `must be "false" or not set: otherwise AKS deletes the Node`)
		}
	}
	if v, given := c.Node.Labels[PodCIDRLabel]; given {
		r.add(member("node.labels", PodCIDRLabel), show(v),
			"is reserved for the agent: remove it; cni.podCIDR sets the subnet")
	}
	seen := map[string]int{}
	for i, taint := range c.Node.Taints {
		at := item("node.taints", i)
		key, _, effect := cutTaint(taint)
		if first, twice := seen[key+":"+effect]; !twice {
			seen[key+":"+effect] = i
		} else if !r.spoiled(at) {
			r.add(at, show(taint), "has the key and effect of "+item("node.taints", first)+": keep one")
		}
	}
	k := c.Node.Kubelet
	const whole, part = "node.kubelet.shutdownGracePeriod",
		"node.kubelet.shutdownGracePeriodCriticalPods"
	if duration(k.CriticalGracePeriod) > duration(k.ShutdownGracePeriod) && !r.spoiled(whole, part) {
		r.add(part, show(k.CriticalGracePeriod), fmt.Sprintf(
			"must not be longer than shutdownGracePeriod, which is %s", k.ShutdownGracePeriod))
	}
	const high, low = "node.kubelet.imageGCHighThreshold", "node.kubelet.imageGCLowThreshold"
	if k.ImageGCLowThreshold >= k.ImageGCHighThreshold && !r.spoiled(high, low) {
		r.add(low, fmt.Sprint(k.ImageGCLowThreshold), fmt.Sprintf(
			"must be lower than imageGCHighThreshold, which is %d", k.ImageGCHighThreshold))
	}
}

// Reserved returns the resources that kubelet reserves for Kubernetes daemons on a machine with the
// given thousandths of a processor and bytes of memory: the configured ones, over those of AKS from
// 1.29 on (Microsoft Learn, "Node resource reservations in AKS"). AKS documents processors for 1,
// 2, 4, 8, ... 64; memory is the lesser of an amount for each pod and a quarter, here of whole MiB.
func (n Node) Reserved(processors int, memory int64) map[string]string {
	if processors == 0 || memory == 0 { // not known
		return n.Kubelet.KubeReserved
	}
	cores := max(processors/1000, 1)
	cpu := 60 + 40*min(cores-1, 1) + 20*min(max(cores-2, 0), 2) + 10*max(cores-4, 0)
	const unit = 16 // tolerates a few KiB more or less with another kernel
	quarter := memory / 4 >> 20 / unit * unit
	reserved := map[string]string{
		"cpu":    fmt.Sprintf("%dm", cpu),
		"memory": fmt.Sprintf("%dMi", min(int64(20*n.MaxPods+50), quarter)),
	}
	maps.Copy(reserved, n.Kubelet.KubeReserved)
	return reserved
}

const aCA = "base64 of one or more PEM certificates of certificate authorities"

// checkCA reads node.kubelet.caCertData. Expiry is reported when it is used. Problems omit the
// value: it is long and may be a private key by mistake.
func checkCA(c Config, r *report) {
	const at = "node.kubelet.caCertData"
	if c.Node.Kubelet.CACertData == "" || r.spoiled(at) {
		return
	}
	if last := checkedCA.Load(); last != nil && *last == c.Node.Kubelet.CACertData {
		return
	}
	if err := parseCA(c.Node.Kubelet.CACertData); err != nil {
		r.add(at, "", fmt.Sprintf("must be %s: %v", aCA, err))
		return
	}
	checkedCA.Store(new(c.Node.Kubelet.CACertData))
}

// checkedCA is the last one without a problem: a provider checks many nodes of a cluster.
var checkedCA atomic.Pointer[string]

func parseCA(text string) error {
	if strings.HasPrefix(strings.TrimSpace(text), "-----BEGIN") {
		return errors.New("this is PEM itself: encode it (base64 -w0)")
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return errors.New("it is not base64")
	}
	for n, rest := 0, data; ; n++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			if n == 0 {
				return errors.New("it holds no PEM certificate")
			} else if bytes.Count(data, []byte("-----BEGIN")) == n {
				return nil
			}
		}
		if block == nil || block.Type != "CERTIFICATE" { // pem.Decode skips a PGP key
			return errors.New("it contains data other than certificates: remove it")
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return fmt.Errorf("certificate %d cannot be parsed", n+1)
		}
		if !cert.BasicConstraintsValid || !cert.IsCA {
			return fmt.Errorf("certificate %d (%s) is not a CA certificate",
				n+1, show(cert.Subject.CommonName))
		}
	}
}
