package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdutl "go.etcd.io/etcd/etcdutl/v3/snapshot"
)

// External holds the access to an etcd cluster outside the process. Its members need --max-txn-ops
// of at least MaxWrites, which is etcd's default, and no compaction of their own: the provider
// compacts (KeepCompacted).
type External struct {
	Endpoints []string `json:"endpoints"`
	CAFile    string   `json:"caFile,omitempty"`
	CertFile  string   `json:"certFile,omitempty"`
	KeyFile   string   `json:"keyFile,omitempty"`
}

// Dial returns a Backend in an etcd cluster outside the process. It does not wait for an answer.
func Dial(at External) (*Etcd, error) {
	config, err := at.config()
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("cannot reach etcd at %v: %w", at.Endpoints, err)
	}
	unknown := func() int64 { return -1 }
	return &Etcd{client: client, free: unknown, patience: requestPatience}, nil
}

// silent is the logger of a client without a server: it writes nothing.
var silent = clientv3.NewCtxClient(context.Background()).GetLogger()

// config returns a configuration that leaves a hanging member within seconds.
func (e External) config() (clientv3.Config, error) {
	c, err := clientv3.NewClientConfig(&clientv3.ConfigSpec{
		Endpoints: e.Endpoints, DialTimeout: 5 * time.Second,
		KeepAliveTime: 5 * time.Second, KeepAliveTimeout: 3 * time.Second,
		Secure: &clientv3.SecureConfig{Cacert: e.CAFile, Cert: e.CertFile, Key: e.KeyFile,
			InsecureTransport: true}, // without files the endpoint's scheme decides
	}, silent)
	if err != nil {
		return clientv3.Config{}, fmt.Errorf("cannot use etcd's certificates: %w", err)
	}
	c.Logger = silent
	return *c, nil
}

// current returns the access to a member that has all earlier writes: the snapshot of one that is
// behind would lack the last ones.
func (e External) current(ctx context.Context) (clientv3.Config, error) {
	config, err := e.config()
	if err != nil {
		return config, err
	}
	var errs []error
	for _, endpoint := range e.Endpoints {
		config.Endpoints = []string{endpoint}
		err := readAt(ctx, config)
		if err == nil {
			return config, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", endpoint, err))
	}
	return config, errors.Join(errs...)
}

// readAt reads from one member, which answers once it has caught up with the cluster.
func readAt(ctx context.Context, config clientv3.Config) error {
	client, err := clientv3.New(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	_, err = client.Get(ctx, root, clientv3.WithCountOnly())
	return errors.Join(err, client.Close())
}

// Backup writes a snapshot of a running store to a new file, from any member.
func Backup(ctx context.Context, from External, path string) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("cannot write the backup: %s already exists", path)
	}
	config, err := from.current(ctx)
	if err == nil {
		_, err = etcdutl.NewV3(silent).Save(ctx, config, path)
	}
	if err != nil {
		return fmt.Errorf("cannot write the backup: %w", err)
	}
	return os.Chmod(path, 0o600)
}
