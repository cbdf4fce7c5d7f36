// Package storetest has databases for tests and measurements: one in memory that can be made to
// fail, and etcds of several members in this process.
package storetest

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"go.etcd.io/etcd/server/v3/embed"
	"golang.org/x/sys/unix"
)

// Members is a running etcd on loopback.
type Members struct {
	Endpoints []string
	members   []*embed.Etcd
}

// Start starts an etcd of so many members, each with a directory below dir. They do not wait for
// the disk. quota limits the file of each, in bytes; 0 is etcd's default.
func Start(dir string, size int, quota int64) (*Members, error) {
	for n := 1; ; n++ {
		m, err := start(filepath.Join(dir, strconv.Itoa(n)), size, quota)
		if n == 5 || !errors.Is(err, unix.EADDRINUSE) { // another process was faster
			return m, err
		}
	}
}

func start(dir string, size int, quota int64) (*Members, error) {
	configs, initial, m := []*embed.Config{}, []string{}, &Members{}
	for i := range size {
		c, err := config(dir, fmt.Sprintf("m%d", i), quota)
		if err != nil {
			return nil, err
		}
		configs = append(configs, c)
		initial = append(initial, c.Name+"="+c.AdvertisePeerUrls[0].String())
		m.Endpoints = append(m.Endpoints, c.AdvertiseClientUrls[0].String())
	}
	for _, c := range configs {
		c.InitialCluster = strings.Join(initial, ",")
		server, err := embed.StartEtcd(c)
		if err != nil {
			m.Stop()
			return nil, fmt.Errorf("cannot start an etcd: %w", err)
		}
		m.members = append(m.members, server)
	}
	for _, server := range m.members {
		<-server.Server.ReadyNotify()
	}
	return m, nil
}

func config(dir, name string, quota int64) (*embed.Config, error) {
	c := embed.NewConfig()
	c.Name, c.Dir = name, filepath.Join(dir, name)
	peer, err := port()
	client, err2 := port()
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	c.QuotaBackendBytes, c.UnsafeNoFsync = quota, true
	c.LogOutputs = []string{os.DevNull}
	c.LogLevel = "error"
	return c, nil
}

// port returns an address on loopback without a listener.
func port() (url.URL, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return url.URL{}, fmt.Errorf("cannot find a port: %w", err)
	}
	return url.URL{Scheme: "http", Host: l.Addr().String()}, l.Close()
}

// StopMember stops one member.
func (m *Members) StopMember(i int) {
	m.members[i].Close()
	m.members[i] = nil
}

// Stop stops all members.
func (m *Members) Stop() {
	for _, server := range m.members {
		if server != nil {
			server.Close()
		}
	}
}
