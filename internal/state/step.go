package state

// Step is one of the eleven parts of becoming a node: a name for people, in progress, logs and
// plans. Changes happen in the order of their steps.
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
	return []Step{
		Arc, Services, Directories, System, Runc, Containerd,
		Kubernetes, CNI, Credentials, Kubelet, Start,
	}
}
