package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// External says how an etcd cluster outside the process is reached.
type External struct {
	Endpoints                 []string
	CAFile, CertFile, KeyFile string
}

// Dial returns a client of an etcd cluster outside the process.
func (e External) Dial() (*clientv3.Client, error) {
	config, err := e.config()
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("cannot reach etcd at %v: %w", e.Endpoints, err)
	}
	return client, nil
}

func (e External) config() (clientv3.Config, error) {
	c := clientv3.Config{
		Endpoints: e.Endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		DialKeepAliveTime: 5 * time.Second, DialKeepAliveTimeout: 3 * time.Second, // a member that hangs is left within seconds
	}
	if e.CAFile == "" && e.CertFile == "" {
		return c, nil
	}
	var err error
	info := transport.TLSInfo{TrustedCAFile: e.CAFile, CertFile: e.CertFile, KeyFile: e.KeyFile}
	if c.TLS, err = info.ClientConfig(); err != nil {
		return c, fmt.Errorf("cannot use etcd's certificates: %w", err)
	}
	return c, nil
}

// Embedded is an etcd of one member in this process.
type Embedded struct {
	server *embed.Etcd
	client *clientv3.Client
	lock   *os.File
}

// member is the name of an embedded etcd in its cluster of one. It is told an address for its peers, of whom there are none.
const member = "flexnode-rp"

var nowhere = url.URL{Scheme: "http", Host: "localhost:2380"}

// lockDir keeps a second program away from a data directory.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the data directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot open the store in %s: another flexnode-rp is running on it", dir)
	}
	return f, nil
}

// quota is how large an embedded etcd may become: the most that etcd recommends.
const quota = 8 << 30

// socket is where an embedded etcd listens: in its directory, for backups.
func socket(dir string) string { return filepath.Join(dir, "etcd.sock") }

// Open starts an embedded etcd on a directory, which it makes if need be.
func Open(ctx context.Context, dir string) (*Embedded, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the data directory: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot close the data directory to others: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	c := embed.NewConfig()
	c.Dir, c.Name = filepath.Join(dir, "etcd"), member
	c.ListenClientUrls = []url.URL{{Scheme: "unix", Path: socket(dir)}}
	c.ListenPeerUrls = nil // there are none
	c.AdvertiseClientUrls, c.AdvertisePeerUrls = []url.URL{nowhere}, []url.URL{nowhere}
	c.InitialCluster = member + "=" + nowhere.String()
	c.QuotaBackendBytes = quota
	c.SnapshotCount, c.SnapshotCatchUpEntries = 5000, 500 // what is kept in memory for members that are behind, of whom there are none
	c.AutoCompactionMode, c.AutoCompactionRetention = embed.CompactorModePeriodic, "1h"
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	c.LogLevel = "error"
	server, err := embed.StartEtcd(c)
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("cannot open the store in %s: %w", dir, err)
	}
	select {
	case <-server.Server.ReadyNotify():
		return &Embedded{server: server, client: v3client.New(server.Server), lock: lock}, nil
	case err = <-server.Err():
	case <-ctx.Done():
		err = ctx.Err()
	}
	server.Close()
	lock.Close()
	return nil, fmt.Errorf("cannot open the store in %s: %w", dir, err)
}

// Client returns a client in the process.
func (e *Embedded) Client() *clientv3.Client { return e.client }

// Close stops the etcd.
func (e *Embedded) Close() error {
	err := e.client.Close()
	e.server.Close()
	err = errors.Join(err, e.lock.Close())
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Backup writes a snapshot of a running store to a new file.
func Backup(ctx context.Context, endpoints External, path string) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("cannot write the backup: %s is there already", path)
	}
	config, err := endpoints.config()
	if err != nil {
		return err
	}
	if _, err := snapshot.NewV3(zap.NewNop()).Save(ctx, config, path); err != nil {
		return fmt.Errorf("cannot write the backup: %w", err)
	}
	return os.Chmod(path, 0o600)
}

// LocalEndpoint is where the embedded etcd of a running provider listens.
func LocalEndpoint(dir string) External {
	return External{Endpoints: []string{"unix://" + socket(dir)}}
}

// Restore makes a data directory of a snapshot. There must be none yet.
func Restore(path, dir string) error {
	into := filepath.Join(dir, "etcd")
	if _, err := os.Lstat(into); err == nil {
		return fmt.Errorf("cannot restore: %s is there already; move it away first", into)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot make the data directory: %w", err)
	}
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: path, OutputDataDir: into, Name: member, PeerURLs: []string{nowhere.String()}, InitialCluster: member + "=" + nowhere.String(),
		InitialClusterToken: embed.NewConfig().InitialClusterToken,
	})
	if err != nil {
		return fmt.Errorf("cannot restore %s: %w", path, err)
	}
	return nil
}
