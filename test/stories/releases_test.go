package stories

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"runtime"
	"sync"
)

// releases has the artifacts of these stories, small files in the layout of a mirror, and their
// digests.
var releases = sync.OnceValues(func() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, name := range []string{"kubelet", "kubectl", "kubeadm"} {
		path := "dl.k8s.io/v1.34.4/bin/linux/" + runtime.GOARCH + "/" + name
		files[path] = []byte("#!/bin/sh\n# " + name + "\n")
	}
	const github = "github.com/"
	files[github+"opencontainers/runc/releases/download/v1.3.4/runc."+runtime.GOARCH] =
		[]byte("#!/bin/sh\n# runc\n")
	plugins := []string{"bandwidth", "bridge", "dhcp", "dummy", "firewall", "host-device",
		"host-local", "ipvlan", "loopback", "macvlan", "portmap", "ptp", "sbr", "static", "tap", "tuning",
		"vlan", "vrf"}
	for path, entries := range map[string][]string{
		github + "containerd/containerd/releases/download/v2.2.7/" +
			"containerd-2.2.7-linux-" + runtime.GOARCH + ".tar.gz": {
			"bin/containerd", "bin/containerd-shim-runc-v2", "bin/ctr",
		},
		github + "containernetworking/plugins/releases/download/v1.9.1/" +
			"cni-plugins-linux-" + runtime.GOARCH + "-v1.9.1.tgz": plugins,
		github + "kubernetes/node-problem-detector/releases/download/v1.34.0/" +
			"node-problem-detector-v1.34.0-linux_" + runtime.GOARCH + ".tar.gz": {
			"bin/node-problem-detector", "config/kernel-monitor.json",
		},
	} {
		archive, err := pack(entries)
		if err != nil {
			return nil, err
		}
		files[path] = archive
	}
	return files, nil
})

func pack(entries []string) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	for _, name := range entries {
		text := "#!/bin/sh\n# " + name + "\n"
		if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text)),
			Typeflag: tar.TypeReg}); err != nil {
			return nil, err
		}
		if _, err := t.Write([]byte(text)); err != nil {
			return nil, err
		}
	}
	err := errors.Join(t.Close(), z.Close())
	return b.Bytes(), err
}
