package flexnode

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"time"
)

const (
	// The max numbers kept of one enrolment, and of a node. Once any certificate is revoked, those
	// that were dropped may not write.
	keptCertificates, keptOfNode = 16, 32
	// maxListed is the max number of ids that are adopted from a cluster's list.
	maxListed = 4 * keptOfNode
	// LongestCertificate is the assumed lifetime of a kubelet certificate that no cluster has shown
	// (kube-controller-manager, --cluster-signing-duration).
	LongestCertificate = 365 * 24 * time.Hour
	// LeaveTime limits the time that the machine of a deleted node has to leave its cluster.
	LeaveTime = 30 * time.Minute
)

// Certificate is a client certificate of a kubelet.
type Certificate struct {
	// ID is its credential id in Kubernetes: X509SHA256=HASH; "" for one that was not seen.
	ID   string    `json:"id"`
	Ends time.Time `json:"ends"`
	// UID is the uid of the node that it was issued for; "" once another machine is that node, ShutOut
	// once that was deleted with revokeNow. Enrolment is the id of the credential that its machine
	// joined with, "identity" for an identity in Azure. A renewed certificate inherits both.
	UID       string `json:"uid,omitempty"`
	Enrolment string `json:"enrolment,omitempty"`
	// Revoked is the time from which it may not write.
	Revoked *time.Time `json:"revoked,omitempty"`
	// Left reports that its machine has left and has destroyed it.
	Left bool `json:"left,omitempty"`
}

// Certificates holds those of all machines that had one node name. The row outlives the node.
type Certificates struct {
	Seen []Certificate `json:"seen,omitempty"`
	// Ends is the latest end of a certificate that was seen.
	Ends time.Time `json:"ends,omitzero"`
	// Only the listed ones may write from Since until Until; zero while none is revoked.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// Epoch holds the epoch of the store at the last revocation, or when the cluster's list was read:
	// in it, no listed certificate is unknown.
	Epoch int64 `json:"epoch,omitempty"`
	// Leaving is the uid of the node whose machine has left: its Node is to be deleted.
	Leaving string `json:"leaving,omitempty"`
}

// last returns the latest end of the certificates for which counts is true; zero for none.
func (c Certificates) last(counts func(Certificate) bool) (end time.Time) {
	for _, o := range c.Seen {
		if counts(o) {
			end = latest(end, o.Ends)
		}
	}
	return end
}

// CertificateID returns the id that API servers since 1.32 report for a certificate in DER.
func CertificateID(der []byte) string {
	return fmt.Sprintf("X509SHA256=%x", sha256.Sum256(der))
}

// Note adds an issued certificate. renewed is the id of the one that it renews; "" for the first
// one of a machine. current reports whether a first one belongs to the present node. The
// certificate of an unknown or revoked machine may not write.
func (c Certificates) Note(
	issued Certificate, renewed string, current bool, now time.Time,
) Certificates {
	if c.find(issued.ID) != nil {
		return c
	}
	if renewed != "" {
		former := c.find(renewed)
		if current = former != nil; current {
			issued.UID, issued.Enrolment, issued.Revoked = former.UID, former.Enrolment, former.Revoked
		}
	}
	if current && renewed == "" && c.Leaving == issued.UID {
		c.Leaving = "" // a machine joins: the Node is its own from now on
	}
	if !current && !c.Since.IsZero() {
		issued.Revoked = &c.Since
	}
	if issued.Revoked != nil {
		c.Until = latest(c.Until, issued.Ends)
	}
	c.Ends = latest(c.Ends, issued.Ends)
	c.Seen = append(slices.DeleteFunc(slices.Clone(c.Seen), func(o Certificate) bool {
		return !now.Before(o.Ends)
	}), issued)
	return c.keep(keptCertificates, func(o Certificate) bool {
		return o.UID == issued.UID && o.Enrolment == issued.Enrolment
	}).keep(keptOfNode, func(o Certificate) bool { return o.UID == issued.UID })
}

// keep drops one of the certificates for which counts is true if there are more than limit: of all
// but the newest the one that ends first, so that the name is held as long (HeldUntil).
func (c Certificates) keep(limit int, counts func(Certificate) bool) Certificates {
	own := slices.DeleteFunc(slices.Clone(c.Seen), func(o Certificate) bool { return !counts(o) })
	if len(own) > limit {
		first := slices.MinFunc(own[:limit], func(a, b Certificate) int { return a.Ends.Compare(b.Ends) })
		c.Seen = slices.DeleteFunc(c.Seen, func(o Certificate) bool { return o.ID == first.ID })
	}
	return c
}

// Admits reports whether the first certificate of a machine belongs to the node's present one, by
// the certificates of its name. The key in a restored store may be of a machine that was shut out
// after the backup, and still gets bootstrap tokens. It counts once it was proved in this epoch of
// the store, or if a certificate of the backup may write.
func (n Node) Admits(first Certificate, c Certificates, epoch int64) bool {
	return n.UID == first.UID && (c.Since.IsZero() || n.MachineKey == "" ||
		epoch <= max(1, n.KeyEpoch) || n.Enrolment == first.Enrolment ||
		slices.ContainsFunc(c.Seen, func(o Certificate) bool {
			return o.UID == n.UID && o.Enrolment != "" && o.Revoked == nil
		}))
}

// find returns the certificate with an id; nil for none.
func (c Certificates) find(id string) *Certificate {
	if i := slices.IndexFunc(c.Seen, func(o Certificate) bool { return o.ID == id }); i >= 0 {
		return &c.Seen[i]
	}
	return nil
}

// Revoke revokes all certificates for which keep is false from a time on, also those that the
// provider has not seen; nil keeps none. uid is the deleted node's; "" where another machine
// becomes the node, so that the previous machine's certificates do not count as destroyed when that
// one leaves. epoch is that of the store.
func (c Certificates) Revoke(
	uid string, keep func(Certificate) bool, from time.Time, epoch int64,
) Certificates {
	c.Epoch = epoch
	from = from.UTC().Truncate(time.Second)
	c = c.Unseen(uid, from).each(func(o *Certificate) {
		if o.ID != "" && keep != nil && keep(*o) {
			return
		}
		if o.Revoked == nil && uid == "" {
			o.UID = ""
		}
		if o.Revoked == nil || o.Revoked.After(from) {
			o.Revoked = &from
		}
	})
	if c.Since.IsZero() || c.Since.After(from) {
		c.Since = from
	}
	c.Until = latest(c.Until, c.Ends)
	return c
}

// Adopt returns the certificates of a restored store for a node of which the cluster lists the only
// ones that may write: since the backup some may have been issued, and others revoked. It does so
// once in an epoch. The API server may be hostile: texts that are too long, and ids beyond
// maxListed, do not count.
func (c Certificates) Adopt(listed []string, uid string, now time.Time, epoch int64) Certificates {
	if epoch <= max(1, c.Epoch) {
		return c
	}
	listed = slices.DeleteFunc(slices.Clone(listed[:min(len(listed), maxListed)]),
		func(id string) bool { return len(id) > len(CertificateID(nil)) })
	c.Ends = latest(c.Ends, now.UTC().Truncate(time.Second).Add(LongestCertificate))
	for _, id := range listed {
		c = c.Note(Certificate{ID: id, Ends: c.Ends, UID: uid}, "", true, now)
	}
	return c.Revoke("", func(o Certificate) bool { return slices.Contains(listed, o.ID) }, now, epoch)
}

// each returns a copy with every certificate changed.
func (c Certificates) each(change func(*Certificate)) Certificates {
	c.Seen = slices.Clone(c.Seen)
	for i := range c.Seen {
		change(&c.Seen[i])
	}
	return c
}

// Unseen adds an entry for the unseen certificate of a node's machine, if there are no entries.
func (c Certificates) Unseen(uid string, now time.Time) Certificates {
	if len(c.Seen) == 0 {
		c.Ends = now.UTC().Truncate(time.Second).Add(LongestCertificate)
		c.Seen = []Certificate{{Ends: c.Ends, UID: uid}}
	}
	return c
}

// Leave notes that the machine of a node has left: it has destroyed its certificates.
func (c Certificates) Leave(uid string) Certificates {
	return c.each(func(o *Certificate) { o.Left = o.Left || uid != "" && o.UID == uid })
}

// Return moves the certificates of a deleted node to the node that its machine has become, or to
// ShutOut: they hold the name until they end, also if the machine says, or said, that it left.
func (c Certificates) Return(uid, as string) Certificates {
	return c.each(func(o *Certificate) {
		if o.UID == uid {
			o.UID, o.Left = as, false
		}
	})
}

// HeldUntil returns the end of the last revoked certificate whose machine has not left; zero for
// none.
func (c Certificates) HeldUntil(now time.Time) time.Time {
	return c.last(func(o Certificate) bool {
		return o.Revoked != nil && !o.Left && now.Before(o.Ends)
	})
}

// OursUntil returns the end of the last certificate of a machine that had joined as a node of this
// provider; zero for none. A machine that says it has left may still have its certificate.
func (c Certificates) OursUntil() time.Time {
	return c.last(func(o Certificate) bool { return o.UID != "" || o.Enrolment != "" })
}

// May returns the ids of the certificates that may write, and whether all others may not.
func (c Certificates) May(now time.Time) (ids []string, alone bool) {
	if c.Since.IsZero() || now.Before(c.Since) || !now.Before(c.Until) {
		return nil, false
	}
	for _, o := range c.Seen {
		if o.ID != "" && now.Before(o.Ends) && (o.Revoked == nil || now.Before(*o.Revoked)) {
			ids = append(ids, o.ID)
		}
	}
	return ids, true
}

// IsRevoked reports whether the certificate with an id may not write.
func (c Certificates) IsRevoked(id string, now time.Time) bool {
	o := c.find(id)
	return o != nil && o.Revoked != nil && !now.Before(*o.Revoked)
}

// Next returns the next time at which the answer of May changes; zero for never.
func (c Certificates) Next(now time.Time) (next time.Time) {
	sooner := func(t time.Time) {
		if now.Before(t) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	sooner(c.Since)
	sooner(c.Until)
	for _, o := range c.Seen {
		if o.Revoked != nil {
			sooner(*o.Revoked)
		}
	}
	return next
}

// Over reports whether all revoked certificates have expired.
func (c Certificates) Over(now time.Time) bool { return !c.Since.IsZero() && !now.Before(c.Until) }

// Restored returns the row without revoked and expired certificates: none is revoked any more.
func (c Certificates) Restored(now time.Time) Certificates {
	c.Since, c.Until = time.Time{}, time.Time{}
	c.Seen = slices.DeleteFunc(slices.Clone(c.Seen), func(o Certificate) bool {
		return o.Revoked != nil || !now.Before(o.Ends)
	})
	return c
}

func latest(of ...time.Time) time.Time { return slices.MaxFunc(of, time.Time.Compare) }
