package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"
)

// EtcdMember is the state of one member of an etcd, as it reports it.
type EtcdMember struct {
	Endpoint string
	Version  string
	Leader   bool
	// HasLeader reports that it has a leader: without one nothing can be written.
	HasLeader bool
	Revision  int64
	// Size is the size of its file, InUse the part of it with content, Quota the max size of the
	// file, in bytes.
	Size, InUse, Quota int64
	// Full and Corrupt are the alarms that etcd raises.
	Full, Corrupt bool
	// Err is the reason that it did not answer; only Endpoint is set then.
	Err error
}

// memberTimeout limits the time of a member's report of its state.
const memberTimeout = 2 * time.Second

// Members asks all members for their state, at once and without a write.
func (e *Etcd) Members(ctx context.Context) []EtcdMember {
	endpoints := []string{""} // the member in this process needs none
	if e.server == nil {
		endpoints = e.client.Endpoints()
	}
	members := make([]EtcdMember, len(endpoints))
	var all sync.WaitGroup
	for i, endpoint := range endpoints {
		all.Go(func() { members[i] = e.member(ctx, endpoint) })
	}
	all.Wait()
	return members
}

func (e *Etcd) member(ctx context.Context, endpoint string) EtcdMember {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	status, err := e.client.Status(ctx, endpoint)
	if err != nil {
		return EtcdMember{Endpoint: endpoint, Err: err}
	}
	return EtcdMember{
		Endpoint: endpoint, Version: status.Version, Revision: status.Header.Revision,
		Leader:    status.Leader == status.Header.MemberId && status.Leader != 0,
		HasLeader: status.Leader != 0,
		Size:      status.DbSize, InUse: status.DbSizeInUse, Quota: status.DbSizeQuota,
		Full:    raised(status, etcdserverpb.AlarmType_NOSPACE),
		Corrupt: raised(status, etcdserverpb.AlarmType_CORRUPT),
	}
}

// raised reports whether a member has an alarm. A request for the list of alarms would be a write.
func raised(status *clientv3.StatusResponse, alarm etcdserverpb.AlarmType) bool {
	return slices.ContainsFunc(status.Errors, func(text string) bool {
		return strings.Contains(text, "alarm:"+alarm.String())
	})
}

// Health implements Backend. It returns an error if no member answers or none has a leader.
func (e *Etcd) Health(ctx context.Context) (Health, error) {
	h := Health{Full: e.full.Load(), NoRoom: e.room() != nil, Free: e.free()}
	h.Full = h.Full || h.NoRoom
	var errs []error
	led := false
	for _, m := range e.Members(ctx) {
		if m.Err != nil {
			errs = append(errs, m.Err)
			continue
		}
		led = led || m.HasLeader
		h.Revision = max(h.Revision, m.Revision)
		h.Size, h.InUse = max(h.Size, m.Size), max(h.InUse, m.InUse)
		if h.Quota == 0 || m.Quota < h.Quota {
			h.Quota = m.Quota
		}
		h.Full = h.Full || m.Full
	}
	switch {
	case h.Revision == 0:
		return h, fmt.Errorf("cannot ask the store how it is: %w", errors.Join(errs...))
	case !led:
		return h, fmt.Errorf("cannot use the store: %w", rpctypes.ErrNoLeader)
	}
	return h, nil
}

// ClusterID returns the id of the etcd cluster, a hash of its first members' peer URLs and its
// token. A restore by etcd's own tools on the same hosts keeps it by default.
func (e *Etcd) ClusterID(ctx context.Context) (string, error) {
	got, err := e.client.Get(ctx, root, clientv3.WithCountOnly())
	if err != nil {
		return "", fmt.Errorf("cannot read from the store: %w", translate(err))
	}
	return strconv.FormatUint(got.Header.ClusterId, 16), nil
}

// CompactAll discards all changes before now, waits until their space is free within the file, and
// returns the revision. It is a no-op if the store was compacted further.
func (e *Etcd) CompactAll(ctx context.Context) (now int64, err error) {
	if _, now, err = e.Read(ctx); err == nil {
		_, err = e.client.Compact(ctx, now, clientv3.WithCompactPhysical())
		err = translate(err)
	}
	if err != nil && !errors.Is(err, ErrCompacted) {
		return 0, fmt.Errorf("cannot compact the store: %w", err)
	}
	return now, nil
}

// Defragment returns free space within the members' files to the disk, one member at a time, the
// leader last. A member answers no request meanwhile. tell receives each member before and, with
// done, after.
func (e *Etcd) Defragment(ctx context.Context, tell func(m EtcdMember, done bool)) error {
	members := e.Members(ctx)
	if i := slices.IndexFunc(members, func(m EtcdMember) bool { return m.Leader }); i >= 0 {
		leader := members[i]
		members = append(slices.Delete(members, i, i+1), leader)
	}
	var errs []error
	for _, m := range members {
		if m.Err == nil {
			tell(m, false)
			if e.server != nil {
				m.Err = e.server.Server.Backend().Defrag()
			} else {
				_, m.Err = e.client.Defragment(ctx, m.Endpoint)
			}
		}
		if m.Err != nil {
			errs = append(errs, fmt.Errorf("cannot defragment %s: %w", m.Endpoint, m.Err))
			continue
		}
		tell(e.member(ctx, m.Endpoint), true)
	}
	return errors.Join(errs...)
}

// Disarm makes a store that was full accept writes again, after room was made. Another alarm, of
// members that differ, is an error: only a restore helps.
func (e *Etcd) Disarm(ctx context.Context) error {
	list, err := e.client.AlarmList(ctx)
	if err != nil {
		return fmt.Errorf("cannot ask the store for alarms: %w", err)
	}
	for _, a := range list.Alarms {
		if a.Alarm != etcdserverpb.AlarmType_NOSPACE {
			return fmt.Errorf("cannot disarm the store: member %x raises %s; "+
				"replace that member, or restore a backup", a.MemberID, a.Alarm)
		}
	}
	for _, a := range list.Alarms {
		if _, err := e.client.AlarmDisarm(ctx, (*clientv3.AlarmMember)(a)); err != nil {
			return fmt.Errorf("cannot disarm the store: %w", err)
		}
	}
	e.full.Store(false)
	// Wait until no member that answers reports that it is full.
	ctx, cancel := context.WithTimeout(ctx, e.patience)
	defer cancel()
	for slices.ContainsFunc(e.Members(ctx), func(m EtcdMember) bool { return m.Full }) {
		if !Pause(ctx, 20*time.Millisecond) {
			return fmt.Errorf("cannot disarm the store: a member still reports that it is full: %w",
				ctx.Err())
		}
	}
	return nil
}

const (
	// CompactEvery is the time between compactions of the store, as in kube-apiserver.
	CompactEvery = 5 * time.Minute
	// crowdedEvery replaces it in a crowded store, which changes that grow no row would fill with
	// history. A process that starts must read all rows at one revision within that time.
	crowdedEvery = time.Minute
)

// KeepCompacted compacts the store until ctx ends, so that it does not grow for ever: every
// CompactEvery to its revision one interval ago. All replicas do so, each at its own times, so
// changes are kept for one to two intervals. say receives each error; the next interval retries.
func (s *Store) KeepCompacted(ctx context.Context, say func(error)) {
	for seen, at := int64(0), (time.Time{}); ctx.Err() == nil; Pause(ctx, crowdedEvery) {
		if time.Since(at) < CompactEvery && !s.crowded.Load() {
			continue
		}
		_, now, err := s.Read(ctx)
		if err == nil && seen != 0 {
			err = s.Compact(ctx, seen)
		}
		if err != nil && !errors.Is(err, ErrCompacted) && ctx.Err() == nil {
			say(fmt.Errorf("cannot compact the store: %w", err))
		}
		seen, at = now, time.Now()
	}
}

// reserve is the free space on disk, in bytes, that an embedded etcd keeps: it ends its process
// when it cannot write, and needs room for the next file of its log (64 MiB) and for its database
// (16 MiB). The reserve covers deletions and compaction.
const reserve = 192 << 20

// ErrNoRoom is ErrFull because of the disk. Only free space helps.
var ErrNoRoom = fmt.Errorf("the store's disk has less than %d MiB left: %w", reserve>>20, ErrFull)

// room returns ErrNoRoom while the disk of an embedded etcd is nearly full.
func (e *Etcd) room() error {
	if free := e.free(); free >= 0 && free < reserve {
		return ErrNoRoom
	}
	return nil
}

// freeIn returns the free space on the disk of a directory, in bytes; -1 if it is unknown.
func freeIn(dir string) int64 {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return -1
	}
	return int64(s.Bavail) * s.Bsize
}

// ErrCrowded is ErrFull before the quota is reached: the last tenth is kept for deletions,
// revocations and other writes that grow no row, without which no operator could make room.
var ErrCrowded = fmt.Errorf("nine tenths of its quota are in use: %w", ErrFull)

// spared limits, in bytes, how much one change may grow rows in a crowded store: to revoke or
// consume a credential, end an operation, or set a condition of a node.
const spared = 640

// Health returns the state of the database. Once nine tenths of its quota are in use, changes that
// grow rows are refused until less is in use. Free space within its file counts as free, since etcd
// writes there first.
func (s *Store) Health(ctx context.Context) (Health, error) {
	h, err := s.Backend.Health(ctx)
	if err != nil {
		return h, err
	}
	h.Crowded = h.InUse > h.Quota-h.Quota/10 && h.Quota > 0
	s.crowded.Store(h.Crowded)
	return h, nil
}

// refusal returns ErrCrowded if the store has no room for the writes of a view. Rows that it has
// not read count as new; rows with a lease do not count.
func (v *View) refusal() error {
	grown := 0
	for key, w := range v.writes {
		if w.Lease == 0 {
			grown += len(w.Value) - len(v.read[key].Value)
		}
	}
	if grown > spared && v.store.crowded.Load() {
		return ErrCrowded
	}
	return nil
}
