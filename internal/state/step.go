package state

// Step is one of the eleven parts of becoming a node: a name for people, in progress, logs and plans. Changes happen in the
// order of their steps.
type Step string

// The steps, in order.
const (
	Arc         Step = "arc"
	Services    Step = "services"
	Directories Step = "directories"
	System      Step = "system"
	Runc        Step = "runc"
	Containerd  Step = "containerd"
	Kubernetes  Step = "kubernetes"
	CNI         Step = "cni"
	Credentials Step = "credentials"
	Kubelet     Step = "kubelet"
	Start       Step = "start"
)

// Steps returns all steps in order.
func Steps() []Step {
	return []Step{Arc, Services, Directories, System, Runc, Containerd, Kubernetes, CNI, Credentials, Kubelet, Start}
}

// Item is one wanted resource, the step it belongs to, and the units that must restart when it changes.
type Item struct {
	Step     Step
	Resource Resource
	Owes     []string
}

// Desired is a node as a value: what the host shall be, in the order in which it is brought about.
type Desired []Item

// Keys returns the keys of all items in order.
func (d Desired) Keys() []Key {
	keys := make([]Key, len(d))
	for i, item := range d {
		keys[i] = item.Resource.Key()
	}
	return keys
}

// Observed is what was seen on the host, by key.
type Observed map[Key]Resource
