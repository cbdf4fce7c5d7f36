package kube

// Layer is where the way from this machine to a Ready Node is broken.
type Layer string

// The layers, from the machine outwards and back.
const (
	LayerDNS        Layer = "DNS"
	LayerTCP        Layer = "TCP"
	LayerProxy      Layer = "proxy"
	LayerTLS        Layer = "TLS"
	LayerHTTP       Layer = "HTTP"
	LayerAuth       Layer = "authentication"
	LayerCSR        Layer = "certificate request"
	LayerContainerd Layer = "containerd"
	LayerKubelet    Layer = "kubelet"
	LayerCNI        Layer = "CNI"
	LayerNode       Layer = "Node"
)

// Fault is one broken layer: what is wrong, and what to do or whom to ask.
type Fault struct {
	Layer   Layer
	Message string
	Remedy  string
	Err     error
}

// Error tells layer, message, cause and remedy.
func (f *Fault) Error() string {
	text := string(f.Layer) + ": " + f.Message
	if f.Err != nil {
		text += ": " + f.Err.Error()
	}
	if f.Remedy != "" {
		text += "; " + f.Remedy
	}
	return text
}

// Unwrap returns the cause.
func (f *Fault) Unwrap() error { return f.Err }
