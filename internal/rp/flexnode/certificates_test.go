package flexnode

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"
)

// lives is when the certificates of the tests end, which may last longer.
var lives = began.Add(300 * day)

// seen returns the row with the certificate of a machine that has just joined.
func seen(c Certificates, id, uid, enrolment string) Certificates {
	issued := Certificate{ID: id, Ends: lives, UID: uid, Enrolment: enrolment}
	return c.Note(issued, "", true, began)
}

// of chooses the certificates of an enrolment.
func of(enrolment string) func(Certificate) bool {
	return func(o Certificate) bool { return o.Enrolment == enrolment }
}

// Revoked and unknown certificates and their renewals may not write; a successor's may.
func TestRevokedCertificates(t *testing.T) {
	now, due := began, began.Add(LeaveTime)
	renew := func(c Certificates, id, of string, ends time.Time) Certificates {
		return c.Note(Certificate{ID: id, Ends: ends}, of, false, now)
	}
	late, later := lives.Add(hour), lives.Add(2*hour)
	joined := renew(seen(Certificates{}, "a", "1", "x"), "b", "a", late)
	deleted, replaced := joined.Revoke("1", nil, due, 1), seen(joined, "s", "1", "y")
	replaced = replaced.Revoke("", of("y"), now, 1)
	successor := seen(deleted, "s", "2", "y")
	former := Certificate{ID: "l", Ends: lives, UID: "1", Enrolment: "x"}
	for _, c := range []struct {
		name  string
		row   Certificates
		at    time.Time
		want  string
		until time.Time
	}{
		{"joined", joined, now, "all", time.Time{}},
		{"deleted, not due", deleted, now, "all", late},
		{"deleted and due", deleted, due, "", late},
		{"deleted, then at once", deleted.Revoke("1", nil, now, 1), now, "", late},
		{"deleted, never seen", Certificates{}.Revoke("1", nil, now, 1), now, "",
			now.Add(LongestCertificate)},
		{"successor", successor, due, "s", late},
		{"renewals", renew(renew(successor, "t", "s", lives), "c", "b", later), due, "s t", later},
		{"of unknown machines", renew(successor, "u", "unseen", lives), due, "s", late},
		{"late, of the deleted node", successor.Note(former, "", false, now), due, "s", late},
		{"replaced", replaced, now, "s", late},
		{"replaced, successor deleted", replaced.Revoke("1", nil, due, 1), now, "s", late},
		{"replaced, successor deleted and due", replaced.Revoke("1", nil, due, 1), due, "", late},
		{"ended", successor, late, "all", late},
	} {
		ids, alone := c.row.May(c.at)
		got := strings.Join(ids, " ")
		if !alone {
			got = "all"
		}
		shows(t, c.name, fmt.Sprint(c.want, " until ", c.until), got, "until", c.row.Until)
	}
	shows(t, "what is next, and then", fmt.Sprint(due, " ", late), successor.Next(now),
		successor.Next(due))
	shows(t, "it is over with the last revoked certificate", "false true", successor.Over(due),
		successor.Over(late))
	left := successor.Restored(now)
	shows(t, "what is left afterwards", "1 true", len(left.Seen), left.Since.IsZero())
}

// Each machine that has not left holds a name until its last certificate expires.
func TestNameIsHeld(t *testing.T) {
	now, end, longest, none := began, lives, began.Add(LongestCertificate), time.Time{}
	joined := seen(Certificates{}, "a", "1", "x")
	deleted := joined.Revoke("1", nil, now, 1)
	replaced := seen(joined, "b", "1", "y").Revoke("", of("y"), now, 1)
	again := seen(deleted, "c", "2", "z").Revoke("2", nil, now, 1)
	never := Certificates{}.Revoke("1", nil, now, 1)
	unseen := Certificates{}.Revoke("", of(""), now, 1) // the successor is an identity in Azure
	for name, tt := range map[string]struct {
		c    Certificates
		want time.Time
	}{
		"joined":                                {joined, none},
		"deleted":                               {deleted, end},
		"left":                                  {deleted.Leave("1"), none},
		"left before it is deleted":             {joined.Leave("1").Revoke("1", nil, now, 1), none},
		"another has left":                      {deleted.Leave("2"), end},
		"the former machine has not left":       {replaced.Revoke("1", nil, now, 1).Leave("1"), end},
		"a second node, whose machine has left": {again.Leave("2"), end},
		"both have left":                        {again.Leave("2").Leave("1"), none},
		"not seen":                              {never, longest},
		"the former one was not seen":           {unseen, longest},
		"the former one was not seen, the other left": {
			seen(unseen, "b", "1", "").Revoke("1", nil, now, 1).Leave("1"), longest},
		"shut out, and says that it left": {deleted.Return("1", ShutOut).Leave("1"), end},
		"has said so, and is shut out": {
			joined.Leave("1").Revoke("1", nil, now, 1).Return("1", ShutOut).Leave("1"), end},
		"left, and its successor is shut out": {
			deleted.Leave("1").Return("2", ShutOut).Leave("1"), none},
		"not seen, and left": {never.Leave("1"), none},
	} {
		expect(t, name+": held until", tt.c.HeldUntil(now), tt.want)
		expect(t, name+": in the end held until", tt.c.HeldUntil(now.Add(2*LongestCertificate)), none)
	}
}

// A machine that joins registers its own Node, which is not the one that was to be deleted.
func TestNodeOfASuccessorIsKept(t *testing.T) {
	first := seen(Certificates{}, "a", "1", "")
	first.Leaving = "1"
	left := Certificates{Leaving: "1"}
	issued := Certificate{ID: "b", Ends: lives, UID: "2"}
	for name, tt := range map[string]struct {
		c    Certificates
		want string
	}{
		"joined again":              {seen(left, "b", "1", ""), ""},
		"renewed":                   {first.Note(issued, "a", false, began), "1"},
		"seen late, of another one": {left.Note(issued, "", false, began), "1"},
	} {
		expect(t, name+": the Node to be deleted is of", tt.c.Leaving, tt.want)
	}
}

// A machine that requests endless certificates does not push out those of its successor.
func TestCertificatesAreBounded(t *testing.T) {
	c := seen(Certificates{}, "s", "2", "")
	for i := range 3 * keptCertificates {
		c = seen(c, fmt.Sprint(i), "1", "")
	}
	shows(t, "what is kept", "17 s 32", len(c.Seen), c.Seen[0].ID, c.Seen[1].ID)
	for i := range 3 * keptOfNode {
		id := fmt.Sprint("joined", i)
		c = seen(c, id, "1", id)
	}
	shows(t, "what is kept of many enrolments", "33 s joined64", len(c.Seen), c.Seen[0].ID,
		c.Seen[1].ID)
	listed := []string{strings.Repeat("x", 1000), "own"} // by the API server of a hostile cluster
	for i := range 100_000 {
		listed = append(listed, fmt.Sprint(i))
	}
	for n, want := range map[int]string{3: "own 0", len(listed): "own"} {
		row := Certificates{Seen: []Certificate{{ID: "own", Ends: lives}}}
		row = row.Adopt(listed[:n], "1", began, 2)
		ids, _ := row.May(began)
		if got := strings.Join(ids, " "); !strings.HasPrefix(got, want) || row.find("99999") != nil {
			t.Errorf("of %d listed ones may write %.99s", n, got)
		}
	}
	for _, same := range []bool{true, false} { // short ones do not push out a long one
		c := seen(Certificates{}, "long", "1", "")
		for i := range 40 {
			next := Certificate{ID: fmt.Sprint(i), Ends: began.Add(10 * minute), UID: "1"}
			if !same {
				next.Enrolment = next.ID
			}
			c = c.Note(next, "", true, began)
		}
		expect(t, "the last", c.Seen[len(c.Seen)-1].ID, "39")
		held := c.Revoke("1", nil, began, 1).HeldUntil(began.Add(11 * minute))
		expect(t, "the name is held until", held, lives)
	}
}

// Each case has tokens of boots as BOOT@TIME, ~AGE if a token was made before, and :VERDICT unless
// it is that of the node's machine.
func TestBooted(t *testing.T) {
	verdicts := []string{CurrentBoot: "", FormerBoot: "former", RefusedBoot: "refused",
		QuickBoot: "quick"}
	for name, tt := range map[string]struct {
		tokens string
		second bool // machine
	}{
		"one boot": {"a@0 a@24h", false},
		"a reboot": {"a@0 b@1h b@2h", false},
		"an answer to the boot before is on its way": {
			"a@0 b@1h a@1h1s~1m:former b@1h1m", false},
		"the clock before the reboot was ahead": {"a@0 b@1h a@1h~-30s:former", false},
		"many reboots": {
			"a@0 b@1h c@1h2m d@1h4m e@1h6m f@1h8m:quick f@1h16m g@2h h@3h", false},
		"a copied disk": {"a@0 b@1h a@1h2m b@2h:refused a@3h", true},
		"the newer one boots before the older is seen": {
			"a@0 b@1h c@2h a@2h2m b@3h:refused c@3h:refused a@4h", true},
		"the newer one boots quickly": {"a@0 b@1h c@1h1ns d@1h2ns e@1h3ns f@1h4ns:quick " +
			"a@1h2m f@1h3m:refused b@1h4m:refused e@1h4m:refused", true},
		"the older one returns late": {
			"a@0 b@1h c@1h1ns d@1h2ns e@1h3ns f@1h6m1s:quick a@1h7m f@1h8m:refused", true},
		"the older one reboots": {"a@0 b@1h a@2h c@3h b@4h:refused c@5h", true},
		"the newer one reboots": {"a@0 b@1h a@2h c@3h a@4h c@5h:refused b@5h:refused", true},
		"the newer one boots again and again": {
			"a@0 b@1h a@2h c@2h5m:refused a@2h6m d@2h15m:refused a@2h16m", true},
		"the older one is silent for a day": {"a@0 b@1h a@2h b@24h:refused b@26h b@48h", false},
		"the older one returns after it":    {"a@0 b@1h a@2h b@48h a@72h b@73h:refused", true},
	} {
		t.Run(name, func(t *testing.T) {
			n, seen := Node{MachineKey: "key"}, time.Time{}
			for _, token := range strings.Fields(tt.tokens) {
				rest, verdict, _ := strings.Cut(token, ":")
				rest, age, _ := strings.Cut(rest, "~")
				boot, at, _ := strings.Cut(rest, "@")
				now := began.Add(must(time.ParseDuration(at)))
				issued := now.Add(-must(time.ParseDuration(cmp.Or(age, "0"))))
				next, got := n.Booted(Boot{boot, issued}, seen, now)
				expect(t, token, verdicts[got], verdict)
				if got == CurrentBoot {
					seen = now
				}
				n = next
			}
			expect(t, "the key of the second machine", cmp.Or(n.Second, &SecondMachine{}).Key,
				map[bool]string{true: "key"}[tt.second])
			if len(n.Boots.Former) > keptBoots || len(n.Boots.Refused) > keptBoots {
				t.Errorf("kept: %+v", n.Boots)
			}
		})
	}
}

// An enrolment secret decides which machine with a key is the node; a new key has its own boots.
func TestBootsAfterEnrolment(t *testing.T) {
	n := Node{MachineKey: "key", Enrolment: "id", Second: &SecondMachine{Key: "key", At: began},
		Boots: Boots{Current: "a", Since: began, Former: []string{"c"}, Refused: []string{"b"}}}
	next, as := n.Register("key", "b", "other", 1, began)
	shows(t, "the refused machine registers without the secret", fmt.Sprint(Second, " true"), as,
		next.Second != nil)
	same, as := n.Register("key", "b", "id", 1, began)
	shows(t, "with the secret", fmt.Sprint(Registered, " false b"), as, same.Second != nil,
		same.Boots.Current)
	late := began.Add(48 * hour)
	for boot, want := range map[string]BootVerdict{
		"a": RefusedBoot, "b": CurrentBoot, "c": RefusedBoot, "d": CurrentBoot,
	} {
		_, got := same.Booted(Boot{boot, late}, began, late)
		expect(t, "then boot "+boot, got, want)
	}
	other, _ := n.Register("new", "b", "id", 1, began)
	shows(t, "with another key", "b [] new", other.Boots.Current, other.Boots.Refused,
		other.MachineKey)
}
