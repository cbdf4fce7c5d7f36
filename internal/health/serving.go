package health

// servingCertificate: a kubelet that asks the cluster for its serving certificate, and has none
// yet, answers nobody: logs and exec do not work.
func servingCertificate(e Evidence) Condition {
	switch {
	case !e.Wanted.ServingIssued:
		return holds()
	case !e.Serving.OK():
		return e.Serving.missing()
	case e.Now.Before(e.Serving.Value):
		return holds()
	}
	return fails(OwnerCluster, "Pending", "kubelet waits for its serving certificate "+
		"(node.kubelet.serverTLSBootstrap), and until it has one kubectl logs and exec do not work on "+
		"this node: nobody has approved its request. See `kubectl get csr --field-selector "+
		"spec.signerName=kubernetes.io/kubelet-serving` and run `kubectl certificate approve`; "+
		"flexnode-rp approves those of its nodes; or set serverTLSBootstrap to false")
}
