package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// CheckNode checks a node as its users do, from the host and from a pod that it runs on the node:
// kubelet's port, logs and exec, Services and DNS, and a node port. It returns what works, up to
// the first failure, and removes its objects.
func (l *Lab) CheckNode(ctx context.Context, m Machine) (well []string, err error) {
	const kubelet = "10250"
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(m.IP, kubelet), 3*time.Second)
	if err != nil {
		return nil, fmt.Errorf("cannot reach kubelet's port from the host: %w", err)
	}
	well = append(well, "kubelet's port "+kubelet+" ok")
	if err := conn.Close(); err != nil {
		return well, err
	}
	pod := "check-" + m.Name
	defer func() {
		_, gone := l.Kubectl(context.WithoutCancel(ctx), "", "delete", "pod,service", pod,
			"--ignore-not-found")
		err = errors.Join(err, gone)
	}()
	if _, err := l.CheckPod(ctx, pod, m.Name); err != nil {
		return well, err
	}
	well = append(well, "pod ok", "logs ok", "exec ok")
	if err := l.CheckServices(ctx, pod); err != nil {
		return well, err
	}
	well = append(well, "services ok", "dns ok")
	service, err := l.Expose(ctx, pod)
	if err != nil {
		return well, err
	}
	got, err := l.NodePort(ctx, m, service.Port)
	if err == nil && !strings.HasPrefix(got, "hello from "+pod+" ") {
		err = fmt.Errorf("cannot use port %s of %s: it says %q", service.Port, m.Name, got)
	}
	if err != nil {
		return well, err
	}
	return append(well, "node port "+service.Port+" ok"), nil
}
