// Package lab runs a lab: a real Kubernetes control plane, real systemd machines and a mirror of
// the artifacts, on one Linux machine. Only Azure is simulated. flexlab is its command line; the
// end-to-end tests use it directly.
//
// Everything is below one directory. Whatever is started is recorded there first, so that Down,
// whenever and however often it runs, finds all of it.
package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/lab/component"
)

// The lab's addresses. All are on the bridge or on loopback.
const (
	Bridge      = "flexlab0"
	HostIP      = "10.77.0.1"
	APIServer   = "https://" + HostIP + ":6443"
	MirrorURL   = "https://" + HostIP + ":8443"
	RegistryURL = "http://" + HostIP + ":5000"
	ControlURL  = "http://127.0.0.1:8444"
	PodCIDR     = "10.244.0.0/16"
	ServiceCIDR = "10.96.0.0/16"
	DNSService  = "10.96.0.10"
	// KubernetesService is the ClusterIP of the API server.
	KubernetesService = "10.96.0.1"
)

// Lab is a lab. A host can run one at a time.
type Lab struct {
	// Dir is the lab's directory.
	Dir string
	// Cache is the directory of built programs, which is shared by labs.
	Cache string
	// Self is the path of flexlab, which also serves the mirror in the background and launches
	// machines.
	Self string
	Log  *slog.Logger
	// Say reports progress to the user, one line at a time.
	Say func(format string, args ...any)
	// WithAzure makes Up start a simulated Azure too, which the cluster trusts.
	WithAzure bool
	// Replicas is the number of replicas of the resource provider that Up starts, with Azure; 0 for
	// none. With Members they share an etcd with that number of members, otherwise the only replica
	// embeds one.
	Replicas, Members int
	// WithIPv6 makes Up start a dual-stack lab, whose nodes have a pod subnet of each family.
	WithIPv6 bool

	// Plain gives machines a configuration that the previous release supports too.
	Plain bool

	// arc is held while the Arc agent's package is built.
	arc sync.Mutex
}

// New returns the lab in $FLEXLAB_DIR, or in /var/lib/flexlab.
func New(self string, say func(string, ...any)) (*Lab, error) {
	cache, err := component.CacheDir()
	if err != nil {
		return nil, err
	}
	dir := os.Getenv("FLEXLAB_DIR")
	if dir == "" {
		dir = "/var/lib/flexlab"
	}
	return &Lab{Dir: dir, Cache: cache, Self: self, Log: slog.New(slog.DiscardHandler), Say: say}, nil
}

func (l *Lab) path(elem ...string) string {
	return filepath.Join(append([]string{l.Dir}, elem...)...)
}

// record is the state that Down needs.
type record struct {
	Processes []process `json:"processes"`
	Machines  []Machine `json:"machines"`
	// Parameters are the host's kernel parameters by file, with their values before the lab.
	Parameters map[string]string `json:"parameters"`
	// IPv6 reports whether the lab is dual-stack.
	IPv6 bool `json:"ipv6,omitempty"`
}

func (l *Lab) load() (record, error) {
	var r record
	data, err := os.ReadFile(l.path("lab.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("cannot read the lab's record: %w", err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("cannot read %s: %w", l.path("lab.json"), err)
	}
	return r, nil
}

// change loads the record, calls f to change it and writes it back, under a lock: two commands may
// use a lab at the same time.
func (l *Lab) change(f func(*record)) error {
	lock, err := os.OpenFile(l.path("lab.lock"), os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("cannot open the lab's lock: %w", err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("cannot take the lab's lock: %w", err)
	}
	r, err := l.load()
	if err != nil {
		return err
	}
	f(&r)
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	temp := l.path("lab.json.new")
	if err := os.WriteFile(temp, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("cannot write the lab's record: %w", err)
	}
	return os.Rename(temp, l.path("lab.json"))
}

func needRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("cannot start the lab without root: it creates machines and networks")
	}
	return nil
}

// Up starts what is not running: packages, builds, network, control plane, mirror.
func (l *Lab) Up(ctx context.Context) error {
	if err := needRoot(); err != nil {
		return err
	}
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return fmt.Errorf("cannot make the lab's directory: %w", err)
	}
	if err := l.needIPv6(); err != nil {
		return err
	}
	programs, err := l.build(ctx, ofSystem)
	if err != nil {
		return err
	}
	if _, err := l.proxyTools(ctx); err != nil {
		return fmt.Errorf("cannot get the tools of kube-proxy: %w", err)
	}
	if err := l.networkUp(ctx); err != nil {
		return err
	}
	if err := l.makePKI(); err != nil {
		return err
	}
	began := time.Now()
	if err := l.startServe(ctx); err != nil {
		return err
	}
	if l.WithAzure || l.Replicas > 0 || l.HasAzure() {
		if err := l.startAzure(ctx); err != nil {
			return err
		}
	}
	if err := l.startControlPlane(ctx, programs); err != nil {
		return err
	}
	if l.Replicas > 0 {
		if err := l.startProvider(ctx, programs); err != nil {
			return err
		}
	}
	l.Say("control plane ready in %.1f s", time.Since(began).Seconds())
	return nil
}

// Running returns the names of the lab's running processes in the order in which they were started.
func (l *Lab) Running() ([]string, error) {
	r, err := l.load()
	var names []string
	for _, p := range r.Processes {
		if p.alive() {
			names = append(names, p.Name)
		}
	}
	return names, err
}

// Down stops and removes everything. It continues after errors.
func (l *Lab) Down(ctx context.Context) error {
	r, err := l.load()
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range r.Machines {
		errs = append(errs, l.RemoveMachine(ctx, m.Name))
	}
	r, err = l.load()
	errs = append(errs, err)
	errs = append(errs, l.releaseDisks(false)) // processes that wait for a stalled disk do not end
	for i := len(r.Processes) - 1; i >= 0; i-- {
		errs = append(errs, r.Processes[i].stop())
	}
	errs = append(errs, l.releaseDisks(true))
	errs = append(errs, l.networkDown(ctx, r))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(l.Dir)
}
