package kube

// Layer names the part between this machine and a Ready Node that is broken.
type Layer string

// The layers, in the order in which a node needs them.
const (
	LayerDNS        Layer = "dns"
	LayerTCP        Layer = "tcp"
	LayerProxy      Layer = "proxy"
	LayerTLS        Layer = "tls"
	LayerHTTP       Layer = "http"
	LayerVersion    Layer = "version"
	LayerAuth       Layer = "auth"
	LayerAuthz      Layer = "authz"
	LayerContainerd Layer = "containerd"
	LayerKubelet    Layer = "kubelet"
	LayerCSR        Layer = "csr"
	LayerNode       Layer = "node"
	LayerCNI        Layer = "cni"
)

// Fault is a broken layer in words for a terminal. It holds no credential, neither of the cluster nor of a proxy.
type Fault struct {
	Layer Layer
	// Message says what was seen, Remedy what to do; each is one sentence without a full stop.
	Message string
	Remedy  string
	// Err is the cause, for errors.Is; it is not part of the text.
	Err error
}

// Error gives layer, message and remedy.
func (f *Fault) Error() string {
	text := string(f.Layer) + ": " + f.Message
	if f.Remedy != "" {
		text += "; " + f.Remedy
	}
	return text
}

// Unwrap returns the cause.
func (f *Fault) Unwrap() error { return f.Err }
