package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	etcdutl "go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"golang.org/x/sys/unix"
)

// Options are those of an etcd in this process.
type Options struct {
	// Quota limits its file, in bytes; default 8 GiB, the most that etcd recommends.
	Quota int64
	// NoSync leaves out waiting for the disk: what is written may be lost with the machine. It is
	// for tests.
	NoSync bool
}

const defaultQuota = 8 << 30

// member is the name of an embedded etcd in its cluster of one.
const member = "flexnode-rp"

// peer is the address that an embedded etcd has for its peers, of whom there are none.
func peer() url.URL { return url.URL{Scheme: "http", Host: "localhost:2380"} }

// socket is where an embedded etcd listens: in its directory, for backups and maintenance.
func socket(dir string) string { return filepath.Join(dir, "etcd.sock") }

// LocalEndpoint is where the embedded etcd of a running provider is reached. dir may be relative to
// where this program was started; the URL of a socket may not.
func LocalEndpoint(dir string) External {
	if absolute, err := filepath.Abs(dir); err == nil {
		dir = absolute
	}
	return External{Endpoints: []string{"unix://" + socket(dir)}}
}

// Open starts an etcd on a directory, which it makes if need be. Only one program at a time can.
func Open(ctx context.Context, dir string, o Options) (*Etcd, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the data directory: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot close the data directory to others: %w", err)
	}
	lock, err := lockDir(ctx, dir)
	if err != nil {
		return nil, err
	}
	server, err := startEmbedded(ctx, o.config(dir))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot open the store in %s: %w", dir, err),
			lock.Close())
	}
	return &Etcd{
		server: server, client: v3client.New(server.Server), lock: lock, free: freeIn(dir),
		patience: requestPatience,
	}, nil
}

// ending limits the time for which a process that was killed may still hold its lock: until the
// kernel has taken it apart.
const ending = 3 * time.Second

// lockDir keeps a second program away from a data directory.
func lockDir(ctx context.Context, dir string) (*os.File, error) {
	const flags = os.O_RDWR | os.O_CREATE | unix.O_CLOEXEC | unix.O_NOFOLLOW
	f, err := os.OpenFile(filepath.Join(dir, "lock"), flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the data directory: %w", err)
	}
	if err := take(ctx, func() error {
		return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot open the store in %s: %w", dir, err), f.Close())
	}
	return f, nil
}

// errInUse is a lock that another process keeps.
var errInUse = errors.New("another flexnode-rp is running on it")

// take locks, as soon as the lock is free; an error of another kind is returned at once.
func take(ctx context.Context, lock func() error) error {
	for deadline := time.Now().Add(ending); ; {
		switch err := lock(); {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("cannot lock it: %w", err)
		case time.Now().After(deadline):
			return errInUse
		}
		select {
		case <-ctx.Done():
			return errors.Join(errInUse, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// config is an etcd of one member that listens on a socket. It does not compact by itself: that is
// for KeepCompacted, here as outside.
func (o Options) config(dir string) *embed.Config {
	c := embed.NewConfig()
	c.Dir, c.Name = etcdIn(dir), member
	c.ListenClientUrls = []url.URL{{Scheme: "unix", Path: socket(dir)}}
	c.ListenPeerUrls = nil // there are none
	c.AdvertiseClientUrls, c.AdvertisePeerUrls = []url.URL{peer()}, []url.URL{peer()}
	c.InitialCluster = member + "=" + c.AdvertisePeerUrls[0].String()
	c.QuotaBackendBytes = o.Quota
	if o.Quota == 0 {
		c.QuotaBackendBytes = defaultQuota
	}
	// What is kept in memory for members that are behind, of whom there are none.
	c.SnapshotCount, c.SnapshotCatchUpEntries = 2000, 1
	c.AutoCompactionMode, c.AutoCompactionRetention = embed.CompactorModePeriodic, "0"
	c.MaxTxnOps = MaxWrites
	// Every write is in the log on the disk when it is answered. What is in the log is put into the
	// database so often; no read is possible meanwhile, which takes as long as the disk does.
	c.BackendBatchInterval = 500 * time.Millisecond
	c.UnsafeNoFsync = o.NoSync
	// It logs what it says before it ends the process, and nothing else.
	c.LogLevel, c.LogOutputs = "panic", []string{embed.StdErrLogOutput}
	return c
}

func startEmbedded(ctx context.Context, c *embed.Config) (*embed.Etcd, error) {
	server, err := embed.StartEtcd(c)
	if err != nil {
		return nil, err
	}
	select {
	case <-server.Server.ReadyNotify():
		return server, nil
	case err = <-server.Err():
	case <-ctx.Done():
		err = ctx.Err()
	}
	server.Close()
	return nil, err
}

// readOwn is Read of the etcd in this process, without its client, which takes longer than the
// reading. It does not ask for anything newer: this is the only member and has applied what it says
// is written, so its data is the newest, and a reader need not wait for what others write to the
// disk.
func (e *Etcd) readOwn(ctx context.Context, keys []string) (map[string]KV, int64, error) {
	request := &etcdserverpb.TxnRequest{}
	for _, key := range keys {
		get := &etcdserverpb.RangeRequest{Key: []byte(key), Serializable: true}
		request.Success = append(request.Success, &etcdserverpb.RequestOp{
			Request: &etcdserverpb.RequestOp_RequestRange{RequestRange: get}})
	}
	response, err := e.server.Server.Txn(ctx, request)
	if err != nil {
		return nil, 0, err
	}
	return found(response), response.Header.Revision, nil
}

// awaitOwn waits until readOwn reads a revision: etcd tells of a change a moment before it is there
// to be read (watchableStoreTxnWrite.End), and a busy machine makes that moment long.
func (e *Etcd) awaitOwn(ctx context.Context, revision int64) error {
	for e.server.Server.KV().Rev() < revision {
		if !Pause(ctx, time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

// etcdIn is where the etcd of a data directory is.
func etcdIn(dir string) string { return filepath.Join(dir, "etcd") }

// Holds reports whether a data directory has a store in it.
func Holds(dir string) bool {
	_, err := os.Lstat(etcdIn(dir))
	return err == nil
}

// Restore makes a data directory of a snapshot. There must be none yet.
func Restore(path, dir string) error {
	into := etcdIn(dir)
	if Holds(dir) {
		return fmt.Errorf("cannot restore: %s is there already; move it away first", into)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot make the data directory: %w", err)
	}
	address := peer()
	err := etcdutl.NewV3(silent).Restore(etcdutl.RestoreConfig{
		SnapshotPath: path, OutputDataDir: into, Name: member, PeerURLs: []string{address.String()},
		InitialCluster:      member + "=" + address.String(),
		InitialClusterToken: embed.NewConfig().InitialClusterToken,
	})
	if err != nil {
		return fmt.Errorf("cannot restore %s: %w", path, err)
	}
	return nil
}
