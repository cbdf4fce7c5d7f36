package flexnode

import (
	"testing"
	"time"
)

// shown is a token of a boot that a provider is shown at a time.
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
		"many reboots": {[]shown{{"a", 0, 0, CurrentBoot}, {"b", 1, 0, CurrentBoot},
			{"c", 2, 0, CurrentBoot}, {"d", 3, 0, CurrentBoot}, {"e", 4, 0, CurrentBoot},
			{"f", 5, 0, CurrentBoot}}, false},
		"a copied disk": {[]shown{{"a", 0, 0, CurrentBoot}, {"b", hour, 0, CurrentBoot},
			{"a", hour + 2*time.Minute, 0, CurrentBoot}, {"b", 2 * hour, 0, RefusedBoot},
			{"a", 3 * hour, 0, CurrentBoot}}, true},
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
				if got != s.want {
					t.Errorf("token %d, of %s: %v, want %v", i, s.boot, got, s.want)
				}
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

// An enrolment secret decides which of two machines with one key is the node, and that holds; a new
// key has boots of its own.
func TestBootsAfterEnrolment(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	n := Node{MachineKey: "key", Enrolment: "id", Second: &SecondMachine{Key: "key", At: now},
		Boots: Boots{Current: "a", Since: now, Former: []string{"c"}, Refused: []string{"b"}}}
	if next, as := n.Register("key", "b", "other", now); as != Second || next.Second == nil {
		t.Errorf("the refused machine registers without the secret: %v", as)
	}
	same, as := n.Register("key", "b", "id", now)
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
	other, _ := n.Register("new", "b", "id", now)
	if b := other.Boots; b.Current != "b" || b.Refused != nil || other.MachineKey != "new" {
		t.Errorf("with another key: %+v", b)
	}
}
