package cluster

// changed receives rows of the cluster that have changed in the index.
func (w *worker) changed(table, key string) {
	switch table {
	case "subscriptions":
		w.probeAgain()
		return
	case "clusters":
		w.tasks.Add(task{kind: taskCluster})
	case "nodes":
		w.tasks.Add(task{taskNode, key})
	case "status":
		w.noteReady(key)
	}
	w.tasks.AddAfter(task{kind: taskRollout}, rolloutPause)
}

func (w *worker) probeAgain() {
	select {
	case w.again <- struct{}{}:
	default: // requested already
	}
}

func (w *worker) clusterChanged() error {
	row, err := w.Index.Cluster(w.key)
	if err != nil || !row.Exists() {
		return err
	}
	if row.Value.Deleting() {
		w.tasks.Add(task{kind: taskRemove})
		return nil
	}
	if row.Value.Properties.PodCIDR != "" && row.Value.SubnetsEpoch == 0 {
		w.tasks.Add(task{kind: taskSubnets})
	}
	if w.asked.Load() != row.Value.Version {
		w.probeAgain()
	}
	if row.Value.Facts != "" {
		w.tasks.Add(task{kind: taskRender})
	}
	return nil
}

func (w *worker) nodeChanged(key string) error {
	w.noteReady(key)
	polled, there := w.Index.Poll(key)
	if polled.Joining {
		node, err := w.Index.Node(key)
		if err != nil {
			return err
		}
		w.tasks.Add(task{taskCredential, node.Value.Credential})
	}
	cluster, err := w.Index.Cluster(w.key)
	if err != nil {
		return err
	}
	if !there && cluster.Value.Properties.PodCIDR != "" {
		// Its subnet is free, unless a Node has it, which may be another one after a restore.
		w.tasks.AddAfter(task{kind: taskSubnets}, freedPause)
	}
	if cluster.Value.Facts != "" && w.Index.IsStale(key, cluster.Value.Facts) {
		w.tasks.Add(task{kind: taskRender})
	}
	return nil
}
