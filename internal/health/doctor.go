package health

import (
	"cmp"
	"slices"
)

// Names returns the types of all conditions, in the order of the layers.
func Names() []string {
	var names []string
	for _, known := range catalogue() {
		names = append(names, known.name)
	}
	return names
}

// The verdicts on a condition.
const (
	OK      = "ok"
	Warning = "warning" // a fault with which the node can be healthy
	Fault   = "error"
	Unclear = "unknown"
	Skipped = "skipped" // its evidence was not gathered
)

// Diagnosis is a condition as shown by doctor.
type Diagnosis struct {
	Condition
	Layer   Layer    `json:"layer"`
	Verdict string   `json:"verdict"`
	Follows []string `json:"follows,omitempty"` // the conditions that likely cause this one
}

// Found reports whether the condition is a fault or a warning.
func (d Diagnosis) Found() bool { return d.Verdict == Fault || d.Verdict == Warning }

// Examine evaluates the wanted conditions. Faults come first, each cause before its effects.
func Examine(e Evidence, wanted func(name string) bool) []Diagnosis {
	var found, rest []Diagnosis
	for _, c := range judged(e, func(known entry) bool { return wanted(known.name) }) {
		if e.Examined != nil && e.Examined.Unprivileged && c.of(forRoot) {
			c = Condition{Type: c.Type, Status: Unknown, Reason: "NotRoot", Since: c.Since,
				Message: "root is needed to check this: run it with sudo"}
		}
		if d := diagnosisOf(c); d.Found() {
			found = append(found, d)
		} else {
			rest = append(rest, d)
		}
	}
	return append(inOrder(found), rest...)
}

func diagnosisOf(c Condition) Diagnosis {
	d := Diagnosis{Condition: c, Layer: layerOf(c), Verdict: OK}
	switch {
	case c.NotChecked():
		d.Verdict = Skipped
	case c.Status == Unknown:
		d.Verdict = Unclear
	case c.Status == False && c.of(harmless):
		d.Verdict = Warning
	case c.Status == False:
		d.Verdict = Fault
	}
	return d
}

func inOrder(found []Diagnosis) []Diagnosis {
	order := []string{Fault, Warning}
	slices.SortStableFunc(found, func(a, b Diagnosis) int {
		return cmp.Or(slices.Index(order, a.Verdict)-slices.Index(order, b.Verdict), depth(a)-depth(b))
	})
	for i := range found {
		for _, cause := range found {
			if explains(cause, found[i]) {
				found[i].Follows = append(found[i].Follows, cause.Type)
			}
		}
	}
	var ordered []Diagnosis
	for _, root := range found {
		if len(root.Follows) > 0 {
			continue
		}
		ordered = append(ordered, root)
		for _, d := range found {
			told := slices.ContainsFunc(ordered, func(o Diagnosis) bool { return o.Type == d.Type })
			if slices.Contains(d.Follows, root.Type) && !told {
				ordered = append(ordered, d)
			}
		}
	}
	return ordered
}

func depth(d Diagnosis) int {
	first := slices.IndexFunc(catalogue(), func(known entry) bool { return known.layer == d.Layer })
	return first*1000 + slices.Index(Names(), d.Type)
}

// explains reports whether a finding likely causes another. A warning does not explain an error.
func explains(cause, effect Diagnosis) bool {
	if cause.Verdict != Fault && effect.Verdict == Fault || cause.Type == effect.Type ||
		effect.of(underived) {
		return false
	}
	return slices.Contains(causes(effect.Layer), cause.Layer) ||
		cause.Layer == effect.Layer && slices.Contains(beside(effect.Type), cause.Type)
}

// Layer is the position of a condition on the way from the machine to its Node.
type Layer string

// The layers. A fault in one explains faults in later ones, as defined by causes.
const (
	LayerConfiguration Layer = "configuration"
	LayerMachine       Layer = "machine"
	LayerNetwork       Layer = "network"
	LayerDNS           Layer = "DNS"
	LayerClock         Layer = "clock"
	LayerTLS           Layer = "TLS and proxy"
	LayerCredential    Layer = "credential"
	LayerAPIServer     Layer = "API server"
	LayerRuntime       Layer = "runtime"
	LayerKubelet       Layer = "kubelet"
	LayerNode          Layer = "node"
)

// layerOf returns a condition's layer; for an unreachable API server, that of the fault.
func layerOf(c Condition) Layer {
	l := catalogue()[slices.Index(Names(), c.Type)].layer
	if c.Type != APIServerReachable || c.Status != False {
		return l
	}
	return cmp.Or(map[string]Layer{
		"NameNotResolved": LayerDNS, "NotConnected": LayerNetwork, "ProxyRefused": LayerTLS,
		"NotTrusted": LayerTLS, "ClockOrCertificate": LayerClock,
	}[c.Reason], l)
}

// causes returns the layers that can cause a fault in a layer.
func causes(l Layer) []Layer {
	way := []Layer{LayerNetwork, LayerDNS, LayerClock, LayerTLS}
	return map[Layer][]Layer{
		LayerDNS: {LayerNetwork}, LayerTLS: way[:3], LayerAPIServer: way,
		LayerCredential: slices.Concat(way, []Layer{LayerAPIServer}),
		LayerRuntime:    {LayerMachine}, LayerKubelet: {LayerMachine, LayerRuntime},
		LayerNode: slices.Concat(way, []Layer{LayerMachine, LayerCredential, LayerAPIServer,
			LayerRuntime, LayerKubelet}),
	}[l]
}

// beside returns the conditions of the same layer that can cause a fault of one.
func beside(name string) []string {
	credentials := []string{PrincipalCredential, KubeletCertificate, ArcConnected, CredentialValid}
	kubelet := []string{KubeletRunning, KubeletStable}
	reported := []string{NodeRegistered, LeaseRenewed, NodeReady}
	return map[string][]string{
		APIServerReachable: {DefaultRoute, PathMTU, NamesResolved, ClockAccurate, ClusterCAValid},
		EndpointsReachable: {DefaultRoute, APIServerReachable}, EndpointsTrusted: {APIServerReachable},
		CredentialValid: credentials, CertificateIssued: credentials,
		KubeletCertificate: {PrincipalCredential},
		KubeletStable:      kubelet, KubeletHealthy: kubelet,
		LeaseRenewed: {NodeRegistered}, NodeReady: {NodeRegistered},
		RunsAsConfigured: reported, PodSubnetsAgree: reported, PodsSynchronized: reported,
		"PodsNetworked":  reported,
		HostAsConfigured: {NodeRegistered, NodeReady, PodSubnetsAgree, LabelsApplied},
	}[name]
}
