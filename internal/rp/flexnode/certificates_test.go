package flexnode

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Revoked and unknown certificates and their renewals may not write; a successor's may.
func TestRevokedCertificates(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	year := now.Add(365 * 24 * time.Hour)
	first := func(c Certificates, id, uid, enrolment string, current bool) Certificates {
		return c.Note(Certificate{ID: id, Ends: year, UID: uid, Enrolment: enrolment}, "", current, now)
	}
	renew := func(c Certificates, id, of string, ends time.Time) Certificates {
		return c.Note(Certificate{ID: id, Ends: ends}, of, false, now)
	}
	none := func(Certificate) bool { return false }
	due := now.Add(LeaveTime)
	joined := renew(first(Certificates{}, "a", "1", "x", true), "b", "a", year.Add(time.Hour))
	successor := first(joined.Revoke("1", none, due, 1), "s", "2", "y", true)
	replaced := first(joined, "s", "1", "y", true).Revoke("", func(o Certificate) bool {
		return o.Enrolment == "y"
	}, now, 1)
	for _, c := range []struct {
		name  string
		row   Certificates
		at    time.Time
		want  string
		until time.Time
	}{
		{"joined", joined, now, "all", time.Time{}},
		{"deleted, not due", joined.Revoke("1", none, due, 1), now, "all", year.Add(time.Hour)},
		{"deleted and due", joined.Revoke("1", none, due, 1), due, "", year.Add(time.Hour)},
		{"deleted, then at once", joined.Revoke("1", none, due, 1).Revoke("1", none, now, 1), now, "",
			year.Add(time.Hour)},
		{"deleted, never seen", Certificates{}.Revoke("1", none, now, 1), now, "", year},
		{"successor", successor, due, "s", year.Add(time.Hour)},
		{"renewals", renew(renew(successor, "t", "s", year), "c", "b", year.Add(2*time.Hour)), due,
			"s t", year.Add(2 * time.Hour)},
		{"of unknown machines", renew(successor, "u", "unseen", year), due, "s", year.Add(time.Hour)},
		{"late, of the deleted node", first(successor, "l", "1", "x", false), due, "s",
			year.Add(time.Hour)},
		{"replaced", replaced, now, "s", year.Add(time.Hour)},
		{"replaced, successor deleted", replaced.Revoke("1", none, due, 1), now, "s",
			year.Add(time.Hour)},
		{"replaced, successor deleted and due", replaced.Revoke("1", none, due, 1), due, "",
			year.Add(time.Hour)},
		{"ended", successor, year.Add(time.Hour), "all", year.Add(time.Hour)},
	} {
		ids, alone := c.row.May(c.at)
		got := strings.Join(ids, " ")
		if !alone {
			got = "all"
		}
		if got != c.want || !c.row.Until.Equal(c.until) {
			t.Errorf("%s: %q until %s, want %q until %s", c.name, got, c.row.Until, c.want, c.until)
		}
	}
	expect(t, "what is next", successor.Next(now), due)
	expect(t, "and then", successor.Next(due), successor.Until)
	if !successor.Over(successor.Until) || successor.Over(due) {
		t.Error("the entry does not end with the last revoked certificate")
	}
	if left := successor.Restored(now); len(left.Seen) != 1 || !left.Since.IsZero() {
		t.Errorf("afterwards %+v", left)
	}
}

// Each machine that has not left holds a name until its last certificate expires.
func TestNameIsHeld(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	end := now.Add(time.Hour)
	note := func(c Certificates, id, uid, enrolment string) Certificates {
		return c.Note(Certificate{ID: id, Ends: end, UID: uid, Enrolment: enrolment}, "", true, now)
	}
	keeps := func(enrolment string) func(Certificate) bool {
		return func(o Certificate) bool { return o.Enrolment == enrolment }
	}
	joined := note(Certificates{}, "a", "1", "x")
	deleted := joined.Revoke("1", nil, now, 1)
	replaced := note(joined, "b", "1", "y").Revoke("", keeps("y"), now, 1)
	again := note(deleted, "c", "2", "z")
	unseen := Certificates{}.Revoke("", keeps(""), now, 1) // the successor is an identity in Azure
	for name, tt := range map[string]struct {
		c    Certificates
		want time.Time
	}{
		"joined":                    {joined, time.Time{}},
		"deleted":                   {deleted, end},
		"left":                      {deleted.Leave("1"), time.Time{}},
		"left before it is deleted": {joined.Leave("1").Revoke("1", nil, now, 1), time.Time{}},
		"another has left":          {deleted.Leave("2"), end},
		"the former machine has not left": {
			replaced.Revoke("1", nil, now, 1).Leave("1"), end},
		"a second node, whose machine has left": {
			again.Revoke("2", nil, now, 1).Leave("2"), end},
		"both have left": {
			again.Revoke("2", nil, now, 1).Leave("2").Leave("1"), time.Time{}},
		"not seen": {
			Certificates{}.Revoke("1", nil, now, 1), now.Add(LongestCertificate)},
		"the former one was not seen": {unseen, now.Add(LongestCertificate)},
		"the former one was not seen, the other left": {
			note(unseen, "b", "1", "").Revoke("1", nil, now, 1).Leave("1"),
			now.Add(LongestCertificate)},
		"shut out, and says that it left": {deleted.Return("1", ShutOut).Leave("1"), end},
		"has said so, and is shut out": {
			joined.Leave("1").Revoke("1", nil, now, 1).Return("1", ShutOut).Leave("1"), end},
		"left, and its successor is shut out": {
			deleted.Leave("1").Return("2", ShutOut).Leave("1"), time.Time{}},
		"not seen, and left": {Certificates{}.Revoke("1", nil, now, 1).Leave("1"), time.Time{}},
	} {
		expect(t, name+": held until", tt.c.HeldUntil(now), tt.want)
		expect(t, name+": in the end held until", tt.c.HeldUntil(now.Add(2*LongestCertificate)),
			time.Time{})
	}
}

// A machine that joins registers its own Node, which is not the one that was to be deleted.
func TestNodeOfASuccessorIsKept(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	left := Certificates{Leaving: "1"}
	note := func(c Certificates, id, uid, renewed string, current bool) Certificates {
		return c.Note(Certificate{ID: id, Ends: now.Add(time.Hour), UID: uid}, renewed, current, now)
	}
	first := note(Certificates{}, "a", "1", "", true)
	first.Leaving = "1"
	for name, tt := range map[string]struct {
		c    Certificates
		want string
	}{
		"joined again":              {note(left, "b", "1", "", true), ""},
		"renewed":                   {note(first, "b", "", "a", false), "1"},
		"seen late, of another one": {note(left, "b", "2", "", false), "1"},
	} {
		expect(t, name+": the Node to be deleted is of", tt.c.Leaving, tt.want)
	}
}

// A machine that requests endless certificates does not push out those of its successor.
func TestCertificatesAreBounded(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	end := now.Add(time.Hour)
	c := Certificates{}.Note(Certificate{ID: "s", Ends: end, UID: "2"}, "", true, now)
	for i := range 3 * keptCertificates {
		c = c.Note(Certificate{ID: fmt.Sprint(i), Ends: end, UID: "1"}, "", true, now)
	}
	if len(c.Seen) != keptCertificates+1 || c.Seen[0].ID != "s" || c.Seen[1].ID != "32" {
		t.Errorf("%d are kept: %+v", len(c.Seen), c.Seen[:2])
	}
	for i := range 3 * keptOfNode {
		id := fmt.Sprint("joined", i)
		c = c.Note(Certificate{ID: id, Ends: end, UID: "1", Enrolment: id}, "", true, now)
	}
	if len(c.Seen) != keptOfNode+1 || c.Seen[0].ID != "s" || c.Seen[1].ID != "joined64" {
		t.Errorf("%d of many enrolments are kept: %+v", len(c.Seen), c.Seen[:2])
	}
	listed := []string{strings.Repeat("x", 1000), "own"} // by the API server of a hostile cluster
	for i := range 100_000 {
		listed = append(listed, fmt.Sprint(i))
	}
	for n, want := range map[int]string{3: "own 0", len(listed): "own"} {
		row := Certificates{Seen: []Certificate{{ID: "own", Ends: end}}}
		row = row.Adopt(listed[:n], "1", now, 2)
		ids, _ := row.May(now)
		if got := strings.Join(ids, " "); !strings.HasPrefix(got, want) || row.find("99999") != nil {
			t.Errorf("of %d listed ones may write %.99s", n, got)
		}
	}
	for _, same := range []bool{true, false} { // short ones do not push out a long one
		year := now.Add(LongestCertificate)
		c := Certificates{}.Note(Certificate{ID: "year", Ends: year, UID: "1"}, "", true, now)
		for i := range 40 {
			next := Certificate{ID: fmt.Sprint(i), Ends: now.Add(10 * time.Minute), UID: "1"}
			if !same {
				next.Enrolment = next.ID
			}
			c = c.Note(next, "", true, now)
		}
		expect(t, "the last", c.Seen[len(c.Seen)-1].ID, "39")
		held := c.Revoke("1", nil, now, 1).HeldUntil(now.Add(11 * time.Minute))
		expect(t, "the name is held until", held, year)
	}
}

// shown is a request with a token of a boot at a time.
type shown struct {
	boot string
	// at is when, and old how long ago the token was made then.
	at, old time.Duration
	want    BootVerdict
}

func TestBooted(t *testing.T) {
	const hour, day = time.Hour, 24 * time.Hour
	for name, tt := range map[string]struct {
		tokens []shown
		second bool
	}{
		"one boot": {[]shown{{"a", 0, 0, CurrentBoot}, {"a", day, 0, CurrentBoot}}, false},
		"a reboot": {[]shown{{"a", 0, 0, CurrentBoot}, {"b", hour, 0, CurrentBoot},
			{"b", 2 * hour, 0, CurrentBoot}}, false},
		"an answer to the boot before is on its way": {[]shown{{"a", 0, 0, CurrentBoot},
			{"b", hour, 0, CurrentBoot}, {"a", hour + time.Second, time.Minute, FormerBoot},
			{"b", hour + time.Minute, 0, CurrentBoot}}, false},
		"the clock before the reboot was ahead": {[]shown{{"a", 0, 0, CurrentBoot},
			{"b", hour, 0, CurrentBoot}, {"a", hour, -30 * time.Second, FormerBoot}}, false},
		"many reboots": {[]shown{{"a", 0, 0, CurrentBoot}, {"b", hour, 0, CurrentBoot},
			{"c", hour + 2*time.Minute, 0, CurrentBoot}, {"d", hour + 4*time.Minute, 0, CurrentBoot},
			{"e", hour + 6*time.Minute, 0, CurrentBoot}, {"f", hour + 8*time.Minute, 0, QuickBoot},
			{"f", hour + 16*time.Minute, 0, CurrentBoot}, {"g", 2 * hour, 0, CurrentBoot},
			{"h", 3 * hour, 0, CurrentBoot}}, false},
		"a copied disk": {[]shown{{"a", 0, 0, CurrentBoot}, {"b", hour, 0, CurrentBoot},
			{"a", hour + 2*time.Minute, 0, CurrentBoot}, {"b", 2 * hour, 0, RefusedBoot},
			{"a", 3 * hour, 0, CurrentBoot}}, true},
		"the newer one boots before the older is seen": {[]shown{{"a", 0, 0, CurrentBoot},
			{"b", hour, 0, CurrentBoot}, {"c", 2 * hour, 0, CurrentBoot},
			{"a", 2*hour + 2*time.Minute, 0, CurrentBoot}, {"b", 3 * hour, 0, RefusedBoot},
			{"c", 3 * hour, 0, RefusedBoot}, {"a", 4 * hour, 0, CurrentBoot}}, true},
		"the newer one boots quickly": {[]shown{{"a", 0, 0, CurrentBoot}, {"b", hour, 0, CurrentBoot},
			{"c", hour + 1, 0, CurrentBoot}, {"d", hour + 2, 0, CurrentBoot},
			{"e", hour + 3, 0, CurrentBoot}, {"f", hour + 4, 0, QuickBoot},
			{"a", hour + 2*time.Minute, 0, CurrentBoot}, {"f", hour + 3*time.Minute, 0, RefusedBoot},
			{"b", hour + 4*time.Minute, 0, RefusedBoot},
			{"e", hour + 4*time.Minute, 0, RefusedBoot}}, true},
		"the older one returns late": {[]shown{{"a", 0, 0, CurrentBoot}, {"b", hour, 0, CurrentBoot},
			{"c", hour + 1, 0, CurrentBoot}, {"d", hour + 2, 0, CurrentBoot},
			{"e", hour + 3, 0, CurrentBoot}, {"f", hour + 361*time.Second, 0, QuickBoot},
			{"a", hour + 7*time.Minute, 0, CurrentBoot},
			{"f", hour + 8*time.Minute, 0, RefusedBoot}}, true},
		"the older one reboots": {[]shown{{"a", 0, 0, CurrentBoot}, {"b", hour, 0, CurrentBoot},
			{"a", 2 * hour, 0, CurrentBoot}, {"c", 3 * hour, 0, CurrentBoot},
			{"b", 4 * hour, 0, RefusedBoot}, {"c", 5 * hour, 0, CurrentBoot}}, true},
		"the newer one reboots": {[]shown{{"a", 0, 0, CurrentBoot}, {"b", hour, 0, CurrentBoot},
			{"a", 2 * hour, 0, CurrentBoot}, {"c", 3 * hour, 0, CurrentBoot},
			{"a", 4 * hour, 0, CurrentBoot}, {"c", 5 * hour, 0, RefusedBoot},
			{"b", 5 * hour, 0, RefusedBoot}}, true},
		"the newer one boots again and again": {[]shown{{"a", 0, 0, CurrentBoot},
			{"b", hour, 0, CurrentBoot}, {"a", 2 * hour, 0, CurrentBoot},
			{"c", 2*hour + 5*time.Minute, 0, RefusedBoot}, {"a", 2*hour + 6*time.Minute, 0, CurrentBoot},
			{"d", 2*hour + 15*time.Minute, 0, RefusedBoot},
			{"a", 2*hour + 16*time.Minute, 0, CurrentBoot}}, true},
		"the older one is silent for a day": {[]shown{{"a", 0, 0, CurrentBoot},
			{"b", hour, 0, CurrentBoot}, {"a", 2 * hour, 0, CurrentBoot},
			{"b", day, 0, RefusedBoot}, {"b", day + 2*hour, 0, CurrentBoot},
			{"b", 2 * day, 0, CurrentBoot}}, false},
		"the older one returns after it": {[]shown{{"a", 0, 0, CurrentBoot},
			{"b", hour, 0, CurrentBoot}, {"a", 2 * hour, 0, CurrentBoot},
			{"b", 2 * day, 0, CurrentBoot}, {"a", 3 * day, 0, CurrentBoot},
			{"b", 3*day + hour, 0, RefusedBoot}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			n := Node{MachineKey: "key"}
			start := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
			var seen time.Time
			for i, s := range tt.tokens {
				now := start.Add(s.at)
				next, got := n.Booted(Boot{ID: s.boot, Issued: now.Add(-s.old)}, seen, now)
				expect(t, fmt.Sprintf("token %d, of %s", i, s.boot), got, s.want)
				if got == CurrentBoot {
					seen = now
				}
				n = next
			}
			if (n.Second != nil) != tt.second || tt.second && n.Second.Key != "key" {
				t.Errorf("second machine: %+v", n.Second)
			}
			if len(n.Boots.Former) > keptBoots || len(n.Boots.Refused) > keptBoots {
				t.Errorf("kept: %+v", n.Boots)
			}
		})
	}
}

// An enrolment secret decides which machine with a key is the node; a new key has its own boots.
func TestBootsAfterEnrolment(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	n := Node{MachineKey: "key", Enrolment: "id", Second: &SecondMachine{Key: "key", At: now},
		Boots: Boots{Current: "a", Since: now, Former: []string{"c"}, Refused: []string{"b"}}}
	if next, as := n.Register("key", "b", "other", 1, now); as != Second || next.Second == nil {
		t.Errorf("the refused machine registers without the secret: %v", as)
	}
	same, as := n.Register("key", "b", "id", 1, now)
	if as != Registered || same.Second != nil || same.Boots.Current != "b" {
		t.Errorf("with the secret: %v, %+v", as, same)
	}
	late := now.Add(48 * time.Hour)
	for boot, want := range map[string]BootVerdict{
		"a": RefusedBoot, "b": CurrentBoot, "c": RefusedBoot, "d": CurrentBoot,
	} {
		if _, got := same.Booted(Boot{boot, late}, now, late); got != want {
			t.Errorf("then boot %s: %v, want %v", boot, got, want)
		}
	}
	other, _ := n.Register("new", "b", "id", 1, now)
	if b := other.Boots; b.Current != "b" || b.Refused != nil || other.MachineKey != "new" {
		t.Errorf("with another key: %+v", b)
	}
}
