package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdutl "go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"golang.org/x/sys/unix"
)

// Options configures an etcd in this process.
type Options struct {
	// Quota limits its file, in bytes; default 8 GiB, the max that etcd recommends.
	Quota int64
	// NoSync does not wait for the disk: a crash of the machine may lose writes. It is for tests.
	NoSync bool
}

const defaultQuota = 8 << 30

// member is the name of an embedded etcd in its cluster of one.
const member = "flexnode-rp"

// peer returns the peer address of an embedded etcd, which has no peers.
func peer() url.URL { return url.URL{Scheme: "http", Host: "localhost:2380"} }

// socket returns the socket of an embedded etcd, for backups and maintenance.
func socket(dir string) string { return filepath.Join(dir, "etcd.sock") }

// LocalEndpoint returns the endpoint of a running provider's embedded etcd. dir may be relative to
// the working directory; the URL of a socket may not.
func LocalEndpoint(dir string) External {
	if absolute, err := filepath.Abs(dir); err == nil {
		dir = absolute
	}
	return External{Endpoints: []string{"unix://" + socket(dir)}}
}

// Open starts an etcd on a directory, which it creates if needed. Only one program at a time can.
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
		return nil, errors.Join(fmt.Errorf("cannot open the store in %s: %w", dir, err), lock.Close())
	}
	return &Etcd{
		server: server, client: v3client.New(server.Server), lock: lock,
		free: func() int64 { return freeIn(dir) }, patience: requestPatience,
	}, nil
}

// ending limits the time for which a killed process may still hold its lock, until the kernel has
// cleaned up.
const ending = 3 * time.Second

// lockDir locks a data directory against other programs.
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

// errInUse is returned if another process holds the lock.
var errInUse = errors.New("another flexnode-rp process is using it")

// take takes the lock as soon as it is free; any other error is returned at once.
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
		if !Pause(ctx, 20*time.Millisecond) {
			return errors.Join(errInUse, ctx.Err())
		}
	}
}

// config configures an etcd of one member that listens on a socket. It does not compact by itself:
// KeepCompacted does, as for an external one.
func (o Options) config(dir string) *embed.Config {
	c := embed.NewConfig()
	c.Dir, c.Name = etcdIn(dir), member
	c.ListenClientUrls = []url.URL{{Scheme: "unix", Path: socket(dir)}}
	c.ListenPeerUrls = nil // it has no peers
	c.AdvertiseClientUrls, c.AdvertisePeerUrls = []url.URL{peer()}, []url.URL{peer()}
	c.InitialCluster = member + "=" + c.AdvertisePeerUrls[0].String()
	c.QuotaBackendBytes = cmp.Or(o.Quota, defaultQuota)
	// Kept in memory for members that are behind; there are none.
	c.SnapshotCount, c.SnapshotCatchUpEntries = 2000, 1
	c.AutoCompactionMode, c.AutoCompactionRetention = embed.CompactorModePeriodic, "0"
	c.MaxTxnOps = MaxWrites
	// Every write is in the log on disk when it is answered. Writes move from the log to the database
	// at this interval; they block reads for as long as the disk takes.
	c.BackendBatchInterval = 500 * time.Millisecond
	c.UnsafeNoFsync = o.NoSync
	// It logs only its last words before it ends the process.
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

// reading returns the options of a read. The etcd in this process is not asked for newer data: as
// the only member, it has applied every write that it has answered, and a reader need not wait for
// writes of others to reach the disk.
func (e *Etcd) reading(options ...clientv3.OpOption) []clientv3.OpOption {
	if e.server != nil {
		options = append(options, clientv3.WithSerializable())
	}
	return options
}

// awaitOwn waits until a read sees a revision: etcd reports a change just before it can be read
// (watchableStoreTxnWrite.End), and a busy machine makes that time long.
func (e *Etcd) awaitOwn(ctx context.Context, revision int64) error {
	for {
		if _, at, err := e.readOwn(ctx); err != nil || at >= revision {
			return err
		}
		if !Pause(ctx, time.Millisecond) {
			return ctx.Err()
		}
	}
}

// readOwn is Read for the etcd in this process, without a request. Other reads copy what is not in
// the database yet; this one holds a lock, for a moment, against writes to it.
func (e *Etcd) readOwn(ctx context.Context, keys ...string) (map[string]KV, int64, error) {
	rows := e.server.Server.KV().Read(mvcc.SharedBufReadTxMode, traceutil.TODO())
	defer rows.End()
	at, got := rows.Rev(), make(map[string]KV, len(keys))
	for _, key := range keys {
		found, err := rows.Range(ctx, []byte(key), nil, mvcc.RangeOptions{Rev: at})
		if err != nil {
			return nil, 0, err
		}
		for _, kv := range found.KVs {
			got[key] = valueOf(&kv)
		}
	}
	return got, at, nil
}

// compactions returns the revisions of the last compactions that the etcd in this process has begun
// and ended.
func (e *Etcd) compactions() (begun, ended int64) {
	tx := e.server.Server.Backend().ReadTx()
	tx.RLock()
	defer tx.RUnlock()
	begun, _ = mvcc.UnsafeReadScheduledCompact(tx)
	ended, _ = mvcc.UnsafeReadFinishedCompact(tx)
	return begun, ended
}

func etcdIn(dir string) string { return filepath.Join(dir, "etcd") }

// Holds reports whether a data directory has a store.
func Holds(dir string) bool {
	_, err := os.Lstat(etcdIn(dir))
	return err == nil
}

// Restore creates a data directory from a snapshot. It must not have a store yet.
func Restore(path, dir string) error {
	into := etcdIn(dir)
	if Holds(dir) {
		return fmt.Errorf("cannot restore: %s already exists; move it away first", into)
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
