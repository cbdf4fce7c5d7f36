// Package store is the provider's storage: rows in etcd, in the process or outside it, behind one client. A change is a transaction
// that names the rows it was decided on, and does not happen if one of them is another by then.
//
// Rows are JSON under keys in lower case, because ARM ignores case; the casing of callers is kept in the values.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrConflict is a transaction that did not happen, because a row it was decided on has changed.
var ErrConflict = errors.New("the stored rows have changed meanwhile")

// Store is the provider's storage. Rows of the indexed tables are also in every replica's Index.
type Store struct {
	client *clientv3.Client
	// Indexed.
	Nodes         Table[Node]
	Status        Table[Status]
	Clusters      Table[Cluster]
	Subscriptions Table[Subscription]
	// Not indexed.
	Secrets     Table[Sealed]     // client secrets, by key of the node
	Credentials Table[Credential] // by cluster and id
	Tokens      Table[string]     // which credential a bootstrap token belongs to, by cluster and id of the token
	Bundles     Table[Sealed]     // by key of the credential
	Facts       Table[Facts]      // by Facts.ID; never changed
	PodCIDRs    Table[string]     // by cluster and number: which node has the subnet
	Tombstones  Table[Tombstone]  // by key of the node
}

const (
	root    = "/flexnode/v1/"
	indexed = root + "i/"
	other   = root + "s/"
)

// New puts the tables on a client.
func New(client *clientv3.Client) *Store {
	return &Store{
		client: client,
		Nodes:  Table[Node]{client, nodePrefix}, Status: Table[Status]{client, statusPrefix},
		Clusters: Table[Cluster]{client, clusterPrefix}, Subscriptions: Table[Subscription]{client, subscriptionPrefix},
		Secrets: Table[Sealed]{client, other + "secrets/"}, Credentials: Table[Credential]{client, other + "credentials/"},
		Tokens: Table[string]{client, other + "tokens/"}, Bundles: Table[Sealed]{client, other + "bundles/"}, Facts: Table[Facts]{client, other + "facts/"},
		PodCIDRs: Table[string]{client, other + "podcidrs/"}, Tombstones: Table[Tombstone]{client, other + "tombstones/"},
	}
}

const (
	nodePrefix         = indexed + "nodes/"
	statusPrefix       = indexed + "status/"
	clusterPrefix      = indexed + "clusters/"
	subscriptionPrefix = indexed + "subscriptions/"
)

// Client is the etcd client, for elections and maintenance.
func (s *Store) Client() *clientv3.Client { return s.client }

// Row is a value with the revision of its last change; revision 0 means that it is not there.
type Row[T any] struct {
	Key      string
	Value    T
	Revision int64
}

// Exists tells whether the row is there.
func (r Row[T]) Exists() bool { return r.Revision != 0 }

// Table is one kind of rows.
type Table[T any] struct {
	client *clientv3.Client
	prefix string
}

// Get reads a row: the last value that was written by anybody (linearizable).
func (t Table[T]) Get(ctx context.Context, key string) (Row[T], error) {
	got, err := t.client.Get(ctx, t.prefix+key)
	if err != nil {
		return Row[T]{}, fmt.Errorf("cannot read %s: %w", t.prefix+key, err)
	}
	if len(got.Kvs) == 0 {
		return Row[T]{Key: key}, nil
	}
	return decode[T](key, got.Kvs[0].Value, got.Kvs[0].ModRevision)
}

func decode[T any](key string, data []byte, revision int64) (Row[T], error) {
	r := Row[T]{Key: key, Revision: revision}
	if err := json.Unmarshal(data, &r.Value); err != nil {
		return r, fmt.Errorf("cannot read the stored row %s: %w", key, err)
	}
	return r, nil
}

// page is how many rows one request reads.
const page = 1000

// List reads the rows whose keys begin with a prefix, in the order of their keys.
func (t Table[T]) List(ctx context.Context, prefix string) ([]Row[T], error) {
	var rows []Row[T]
	from, end := t.prefix+prefix, clientv3.GetPrefixRangeEnd(t.prefix+prefix)
	for {
		got, err := t.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(page))
		if err != nil {
			return nil, fmt.Errorf("cannot list %s: %w", t.prefix+prefix, err)
		}
		for _, kv := range got.Kvs {
			r, err := decode[T](strings.TrimPrefix(string(kv.Key), t.prefix), kv.Value, kv.ModRevision)
			if err != nil {
				return nil, err
			}
			rows = append(rows, r)
		}
		if !got.More {
			return rows, nil
		}
		from = string(got.Kvs[len(got.Kvs)-1].Key) + "\x00"
	}
}

// Txn is a change of several rows at once.
type Txn struct {
	client *clientv3.Client
	ifs    []clientv3.Cmp
	then   []clientv3.Op
	err    error
}

// Txn begins a change.
func (s *Store) Txn() *Txn { return &Txn{client: s.client} }

// Unchanged makes the transaction depend on a row.
func (t Table[T]) Unchanged(txn *Txn, r Row[T]) {
	txn.ifs = append(txn.ifs, clientv3.Compare(clientv3.ModRevision(t.prefix+r.Key), "=", r.Revision))
}

// Put writes a value in place of a row that has been read.
func (t Table[T]) Put(txn *Txn, r Row[T], value T) {
	t.Unchanged(txn, r)
	t.Set(txn, r.Key, value)
}

// Set writes a value whatever is there.
func (t Table[T]) Set(txn *Txn, key string, value T) {
	data, err := json.Marshal(value)
	if err != nil {
		txn.err = fmt.Errorf("internal error: cannot encode %s: %w", t.prefix+key, err)
		return
	}
	txn.then = append(txn.then, clientv3.OpPut(t.prefix+key, string(data)))
}

// Delete takes a row away that has been read.
func (t Table[T]) Delete(txn *Txn, r Row[T]) {
	t.Unchanged(txn, r)
	t.Clear(txn, r.Key)
}

// Clear takes a row away, if it is there.
func (t Table[T]) Clear(txn *Txn, key string) {
	txn.then = append(txn.then, clientv3.OpDelete(t.prefix+key))
}

// Commit makes the change and returns its revision; ErrConflict if a row it depends on has changed. Any other error leaves open
// whether it happened.
func (t *Txn) Commit(ctx context.Context) (int64, error) {
	if t.err != nil {
		return 0, t.err
	}
	got, err := t.client.Txn(ctx).If(t.ifs...).Then(t.then...).Commit()
	if err != nil {
		return 0, fmt.Errorf("cannot write to the store: %w", err)
	}
	if !got.Succeeded {
		return 0, ErrConflict
	}
	return got.Header.Revision, nil
}

// Watch calls a function with each row below a prefix that is written from now on, until ctx ends or the watch breaks.
func (t Table[T]) Watch(ctx context.Context, prefix string, see func(Row[T])) error {
	for got := range t.client.Watch(clientv3.WithRequireLeader(ctx), t.prefix+prefix, clientv3.WithPrefix(), clientv3.WithFilterDelete()) {
		if err := got.Err(); err != nil {
			return fmt.Errorf("cannot follow %s: %w", t.prefix+prefix, err)
		}
		for _, e := range got.Events {
			if r, err := decode[T](strings.TrimPrefix(string(e.Kv.Key), t.prefix), e.Kv.Value, e.Kv.ModRevision); err == nil {
				see(r)
			}
		}
	}
	return ctx.Err()
}

// Size is how large the store is, in bytes, as its largest member says.
func (s *Store) Size(ctx context.Context) (int64, error) {
	var size int64
	for _, endpoint := range s.client.Endpoints() {
		status, err := s.client.Status(ctx, endpoint)
		if err != nil {
			return 0, fmt.Errorf("cannot ask the store how large it is: %w", err)
		}
		size = max(size, status.DbSize)
	}
	return size, nil
}

// Alarm returns an error while the store refuses writes because it is full.
func (s *Store) Alarm(ctx context.Context) error {
	alarms, err := s.client.AlarmList(ctx)
	if err != nil {
		return fmt.Errorf("cannot ask the store for alarms: %w", err)
	}
	for _, a := range alarms.Alarms {
		return fmt.Errorf("the store refuses writes: etcd raises %s; compact and defragment it, or give it a larger quota", a.Alarm)
	}
	return nil
}
