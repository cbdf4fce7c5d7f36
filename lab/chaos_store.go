package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/lab/component"
)

// The ioctls that suspend and resume writes to a file system (linux/fs.h, ioctl_fs(2)).
const (
	fsFreeze = 0xC0045877
	fsThaw   = 0xC0045878
)

// storeTimeout is the timeout of an operator's request to the store.
const storeTimeout = 20 * time.Second

func (l *Lab) memberDir(i int) string { return l.path("rp", fmt.Sprintf("etcd-%d", i)) }

// ownDisks gives each member its own disk, so that one can be stalled. `flexlab down` unmounts
// them.
func (c *chaosRun) ownDisks(ctx context.Context, dirs programs) error {
	if mounts, err := mountsBelow(c.lab.path("rp")); err != nil || len(mounts) > 0 {
		return err // they exist from an earlier run
	}
	for i := range c.lab.Members {
		dir, image := c.lab.memberDir(i), c.lab.memberDir(i)+".img"
		if err := c.lab.killHard(memberName(i)); err != nil {
			return err
		}
		for _, argv := range [][]string{
			{"mv", dir, dir + ".files"}, {"truncate", "--size=1G", image}, {"mkfs.ext4", "-q", image},
			{"mkdir", "-m", "700", dir}, {"mount", "-o", "loop", image, dir},
			{"cp", "-a", dir + ".files/.", dir}, {"rm", "-rf", dir + ".files"},
		} {
			if _, err := run(ctx, argv[0], argv[1:]...); err != nil {
				return err
			}
		}
		if err := c.lab.startMember(dirs, i); err != nil {
			return err
		}
	}
	return nil
}

// releaseDisks resumes writes to the members' disks and, with unmounts, unmounts them.
func (l *Lab) releaseDisks(unmounts bool) error {
	mounts, err := mountsBelow(l.path("rp"))
	for _, at := range mounts {
		_ = freeze(at, fsThaw) // fails if it is not frozen
		if unmounts {
			err = errors.Join(err, unmount(at))
		}
	}
	return err
}

func freeze(dir string, request uint) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.IoctlSetInt(int(f.Fd()), request, 0)
}

// stallDisk blocks writes to a member's disk for a while; the member keeps running.
func (c *chaosRun) stallDisk(_ context.Context, r *rand.Rand) error {
	dir := c.lab.memberDir(r.IntN(c.lab.Members))
	if err := freeze(dir, fsFreeze); err != nil {
		return fmt.Errorf("cannot stall the disk of %s: %w", dir, err)
	}
	time.Sleep(lasting(r))
	return freeze(dir, fsThaw)
}

// endLease revokes a replica's lease, as if the store had not received its renewals.
func (c *chaosRun) endLease(ctx context.Context, r *rand.Rand) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	found, err := c.admin.Leases(ctx)
	if err == nil && len(found.Leases) > 0 {
		_, err = c.admin.Revoke(ctx, found.Leases[r.IntN(len(found.Leases))].ID)
		c.leases++
	}
	if err != nil {
		c.lab.Say("cannot revoke a lease: %v", err) // it has expired, or there is no leader now
	}
	return nil
}

// replaceMember simulates the loss of a member's disk: the member is killed and removed, and
// replaced by one without data.
func (c *chaosRun) replaceMember(ctx context.Context, r *rand.Rand, dirs programs) error {
	i := r.IntN(c.lab.Members)
	if err := c.lab.killHard(memberName(i)); err != nil {
		return err
	}
	err := until(ctx, time.Minute, "a store without "+memberName(i), func() error {
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		list, err := c.admin.MemberList(ctx)
		if err != nil {
			return err
		}
		for _, m := range list.Members {
			if m.PeerURLs[0] == peerURL(i) {
				_, err = c.admin.MemberRemove(ctx, m.ID)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	files, err := filepath.Glob(c.lab.memberDir(i) + "/member*")
	for _, file := range files {
		err = errors.Join(err, os.RemoveAll(file))
	}
	if err != nil {
		return fmt.Errorf("cannot empty the disk of %s: %w", memberName(i), err)
	}
	// etcd accepts no new member until the others have been connected for a while
	err = until(ctx, time.Minute, "another "+memberName(i), func() error {
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		added, err := c.admin.MemberAdd(ctx, []string{peerURL(i)})
		if err != nil {
			return err
		}
		c.members[fmt.Sprintf("%x", added.Member.ID)] = memberName(i)
		return nil
	})
	if err == nil {
		err = c.lab.SetLinks(ctx, LinkStates{Members: c.members})
	}
	if err == nil {
		err = c.lab.background(memberName(i), filepath.Join(dirs[component.Etcd], "etcd"),
			append(c.lab.memberFlags(i), "--initial-cluster-state=existing")...)
	}
	if err != nil {
		return err
	}
	c.replaced++
	return until(ctx, time.Minute, memberName(i)+" again", func() error {
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		_, err := c.admin.Status(ctx, fmt.Sprintf("http://127.0.0.1:%d", clientPort(i)))
		return err
	})
}

// storeClient returns a client that connects directly to the members, not through links.
func storeClient(endpoints []string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: storeTimeout})
}
