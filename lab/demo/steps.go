package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/lab"
	"github.com/Azure/AKSFlexNode/lab/mirror"
)

// join runs the agent with the configuration URL and waits until the Node is Ready.
func (s *story) join(ctx context.Context) error {
	s.wants = s.first()
	url, err := s.create(ctx)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	cmd, err := s.Lab.Command(running, s.m, "aks-flex-node", "agent", "--config-url-file", "-")
	if err != nil {
		return err
	}
	cmd.Stdin = strings.NewReader(url + "\n")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	err = until(ctx, 10*time.Minute, "a Ready Node", func(ctx context.Context) (bool, error) {
		select {
		case err := <-ended:
			ended <- err
			if err != nil {
				return true, nil // returned below
			}
		default:
		}
		n, err := s.node(ctx)
		return err == nil && n.Ready(), err
	})
	s.Join = since(began)
	if err != nil {
		stop() // do not wait for the command
	}
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	s.Lab.Say("Node %s is Ready after %.1f s, with kubelet %s; you can use it meanwhile: "+
		"bin/flexlab kubectl get nodes", s.name, s.Join, s.begins.Kubernetes)
	return nil
}

// pod returns the name of a pod without a controller.
func (s *story) pod() string { return "hello-" + s.name }

// check uses the node as its users would.
func (s *story) check(ctx context.Context) error {
	ip, err := s.Lab.CheckPod(ctx, s.pod(), s.name)
	if err != nil {
		return err
	}
	if err := s.Lab.CheckServices(ctx, s.pod()); err != nil {
		return err
	}
	s.Lab.Say("pod %s Running at %s; logs ok; exec ok; services ok; dns ok", s.pod(), ip)
	if !s.lived {
		return nil
	}
	return s.deploy(ctx)
}

// label changes a label. The long poll is measured, so it first waits for one.
func (s *story) label(ctx context.Context) error {
	if err := s.polls(ctx); err != nil {
		return err
	}
	if err := s.watchKubelet(ctx); err != nil {
		return err
	}
	s.wants["nodeConfig"].(properties)["labels"] = properties{"story": "goes-on"}
	_, at, err := s.put(ctx, "")
	if err != nil {
		return err
	}
	err = until(ctx, time.Minute, "the label", func(ctx context.Context) (bool, error) {
		n, err := s.node(ctx)
		return n.Metadata.Labels["story"] == "goes-on", err
	})
	s.Label = since(at)
	s.Lab.Say("the Node has the label %.1f s after the PUT", s.Label)
	err = errors.Join(err, s.applied(ctx))
	s.KubeletDown = s.kubelet.stop()
	return err
}

// containerd changes the version of containerd and a setting of kubelet.
func (s *story) containerd(ctx context.Context) error {
	s.wants["nodeConfig"].(properties)["maxPods"] = 60
	return s.quietly(ctx, lab.Versions{
		Kubernetes: lab.Oldest.Kubernetes, Containerd: lab.Newest.Containerd,
	})
}

// patch changes kubelet's patch version.
func (s *story) patch(ctx context.Context) error { return s.quietly(ctx, lab.Newest) }

// quietly changes the node's versions, which must not affect pods.
func (s *story) quietly(ctx context.Context, v lab.Versions) error {
	before, err := s.containers(ctx)
	if err != nil {
		return err
	}
	if err := s.watchKubelet(ctx); err != nil {
		return err
	}
	s.wants["versions"] = v.Desired()
	if _, _, err := s.put(ctx, ""); err != nil {
		return err
	}
	if err := s.runs(ctx, v); err != nil {
		return err
	}
	if err := s.applied(ctx); err != nil {
		return err
	}
	down := s.kubelet.stop()
	s.KubeletDown = max(s.KubeletDown, down)
	after, err := s.containers(ctx)
	if err != nil {
		return err
	}
	others := 0
	for _, c := range before {
		if !slices.Contains(after, c) {
			others++
		}
	}
	s.Restarted += others
	s.Lab.Say("kubelet %s and containerd %s; kubelet was down for %.1f s; of %d containers %d "+
		"were replaced or restarted", v.Kubernetes, v.Containerd, down, len(before), others)
	return nil
}

// upgrade changes the minor version, for which pods are evicted and come back. The pod without a
// controller is deleted first, as its owner must: a drain waits for it.
func (s *story) upgrade(ctx context.Context) error {
	s.Lab.Say("pod %s has no controller to replace it, so its owner deletes it", s.pod())
	if _, err := s.Lab.Kubectl(ctx, "", "delete", "pod/"+s.pod(), "--wait"); err != nil {
		return err
	}
	if err := s.Older(ctx); err != nil {
		return err
	}
	v := lab.Versions{Kubernetes: lab.Former.Kubernetes, Containerd: lab.Newest.Containerd}
	s.wants["versions"] = v.Desired()
	_, at, err := s.put(ctx, "")
	if err != nil {
		return err
	}
	if err := s.runs(ctx, v); err != nil {
		return err
	}
	if err := s.deployed(ctx); err != nil {
		return err
	}
	s.Drain = since(at)
	s.Lab.Say("kubelet %s runs and the Deployment's pods are back after %.1f s", v.Kubernetes, s.Drain)
	return s.applied(ctx)
}

// dropIn is an operator's file with which a node works, but not with every setting that is valid on
// its own: kubelet does not start with a high threshold below its low one.
const (
	dropInPath = "/etc/kubernetes/kubelet.conf.d/50-operator.conf"
	dropIn     = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
imageGCLowThresholdPercent: 80
`
)

// patience is the ready timeout of the bad revision, patienceISO the same in ISO 8601.
const (
	patience    = 10 * time.Second
	patienceISO = "PT10S"
)

// rollback applies a revision that fails, while the sources of the previous one are switched off.
func (s *story) rollback(ctx context.Context) (err error) {
	config, ok := s.wants["nodeConfig"].(properties)
	if !ok {
		return errors.New("internal error: no nodeConfig")
	}
	config["kubelet"] = properties{"imageGCHighThreshold": 75, "imageGCLowThreshold": 60}
	s.wants["upgradePolicy"] = properties{"readyTimeout": patienceISO}
	if _, _, err := s.put(ctx, ""); err != nil {
		return err
	}
	if err := s.transition(ctx, "change", "gate"); err != nil {
		return err
	}
	deadline := time.Now().Add(patience)
	s.Lab.Say("kubelet does not start with it; provider and mirror are switched off")
	off := mirror.Knobs{Faults: []mirror.Fault{{Kind: mirror.Cut}}}
	defer func() { // the lab stays in use, whatever the result
		ctx := context.WithoutCancel(ctx)
		err = errors.Join(err, s.Lab.StartReplica(ctx, 0), s.Lab.Mirror().Set(ctx, mirror.Knobs{}))
	}()
	if err := errors.Join(s.Lab.StopReplica(0), s.Lab.Mirror().Set(ctx, off)); err != nil {
		return err
	}
	if err := s.transition(ctx, "rollback", ""); err != nil {
		return err
	}
	if now := time.Now(); now.Before(deadline) { // the gate may decide earlier
		deadline = now
	}
	if err := s.transition(ctx, "", ""); err != nil {
		return err
	}
	err = until(ctx, time.Minute, "a Ready Node", func(ctx context.Context) (bool, error) {
		n, err := s.node(ctx)
		return err == nil && n.Ready(), err
	})
	s.Rollback = since(deadline)
	if err != nil {
		return err
	}
	reason, err := s.rejected(ctx)
	s.Lab.Say("rolled back and healthy %.1f s after the health gate's deadline; rejected: %s",
		s.Rollback, reason)
	return err
}

// transition waits until the machine's transition has a kind and phase. "" matches any phase; kind
// "" means no transition.
func (s *story) transition(ctx context.Context, kind, phase string) error {
	path := filepath.Join(s.m.Root, "var/lib/aks-flex-node/transition.json")
	return until(ctx, 2*time.Minute, "the "+kind+" "+phase, func(context.Context) (bool, error) {
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			return kind == "", nil
		}
		var is struct{ Kind, Phase string }
		if err == nil {
			err = json.Unmarshal(text, &is)
		}
		return err == nil && is.Kind == kind && (phase == "" || is.Phase == phase), err
	})
}

// rejected returns the reason for which the agent rejected the last configuration.
func (s *story) rejected(ctx context.Context) (string, error) {
	// the exit code reports the node's health
	out, _ := s.Lab.Output(ctx, s.m, "aks-flex-node", "status", "--output", "json")
	var is struct {
		Rejected []struct{ Reason string }
	}
	if err := json.Unmarshal([]byte(out), &is); err != nil {
		return "", fmt.Errorf("cannot read the status: %w", err)
	}
	if len(is.Rejected) == 0 {
		return "", errors.New("nothing is rejected")
	}
	reason, _, _ := strings.Cut(is.Rejected[len(is.Rejected)-1].Reason, "\n")
	return reason, nil
}

// leave deletes the resource, on which the machine leaves the cluster by itself.
func (s *story) leave(ctx context.Context) error {
	const unit = "aks-flex-node-agent.service"
	if _, err := s.arm(ctx, http.MethodDelete, "", nil); err != nil {
		return err
	}
	began := time.Now()
	err := until(ctx, 5*time.Minute, "the agent to wait for another configuration",
		func(ctx context.Context) (bool, error) {
			out, err := s.Lab.Output(ctx, s.m, "systemctl", "show", "-p", "StatusText", unit)
			return strings.Contains(out, "waiting for a configuration"), err
		})
	if err != nil {
		return err
	}
	if out, err := s.Lab.Kubectl(ctx, "", "get", "node", s.name, "--ignore-not-found"); err != nil ||
		out != "" {
		return errors.Join(err, fmt.Errorf("the Node still exists: %s", out))
	}
	s.Lab.Say("the machine has left the cluster %.1f s after the DELETE; "+
		"it has confirmed that with its key, so its name can be reused", since(began))
	if _, err := s.Lab.Output(ctx, s.m, "systemctl", "disable", "--now", unit); err != nil {
		return err
	}
	after, err := s.Lab.Snapshot(ctx, s.m)
	if err != nil {
		return err
	}
	differ := lab.Differences(s.before, after)
	s.Clean = len(differ) == 0
	for _, line := range differ {
		s.Lab.Say("changed: %s", line)
	}
	_, err = s.Lab.Kubectl(ctx, "", "delete", "deployment/"+deployment, "pod/"+s.pod(),
		"--ignore-not-found", "--wait=false")
	if err == nil && !s.Clean {
		err = errors.New("the machine has changed")
	}
	return err
}
