package health

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/host"
)

// authority is a certificate that is valid until a time, in PEM.
func authority(until time.Time) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: until.Add(-48 * time.Hour),
		NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func between(from, to time.Duration) Answer[Validity] {
	return Answered(Validity{From: now().Add(from), To: now().Add(to)}, nil)
}

// Each condition, with what makes it False or Unknown, and what only just does not.
func TestUpkeep(t *testing.T) {
	const day = 24 * time.Hour
	for _, tt := range []struct {
		name, reason string
		change       func(*Upkeep)
	}{
		{"SwapOff", "SwapOn", func(u *Upkeep) { u.Swaps = []string{"/swap.img"} }},
		{"RebootNotPending", "RebootRequired", func(u *Upkeep) { u.RebootRequired = true }},
		{"HostNameStable", "Changed", func(u *Upkeep) { u.HostNames = []string{"edge-1", "other"} }},
		{"HostNameStable", "", func(u *Upkeep) { u.HostNames = nil }},
		{"TimeSynchronized", "NoTimeService", func(u *Upkeep) { u.Clock = &host.Clock{Uptime: settled} }},
		{"TimeSynchronized", "Starting", func(u *Upkeep) { u.Clock = &host.Clock{Uptime: settled - 1} }},
		{"TimeSynchronized", "", func(u *Upkeep) { u.Clock = &host.Clock{Uptime: day, Container: true} }},
		{"TimeSynchronized", "NotSynchronized", func(u *Upkeep) {
			u.Clock = &host.Clock{Uptime: day, Keepers: []string{"chrony.service"}}
		}},
		{"TimeSynchronized", notChecked, func(u *Upkeep) { u.Clock = nil }},
		{ClusterCAValid, "NotValidNow", func(u *Upkeep) { u.CA = authority(now()) }},
		{ClusterCAValid, "", func(u *Upkeep) { u.CA = authority(now()) + authority(now().Add(1e9)) }},
		{ClusterCAValid, notChecked, func(u *Upkeep) { u.CA = "" }},
		{KubeletCertificate, "Expired", func(u *Upkeep) { u.Client = between(-day, 0) }},
		{KubeletCertificate, "NotYetValid", func(u *Upkeep) { u.Client = between(1, day) }},
		{KubeletCertificate, "NotRenewed", func(u *Upkeep) { u.Client = between(-day, time.Hour) }},
		{KubeletCertificate, "", func(u *Upkeep) { u.Client = between(-day, 2*time.Hour) }},
		{KubeletCertificate, "Unreadable", func(u *Upkeep) {
			u.Client = Answered(Validity{}, errors.New("no such file"))
		}},
		{KubeletCertificate, "", func(u *Upkeep) { u.Client = Answer[Validity]{} }},
		{PrincipalCredential, "Unreadable", func(u *Upkeep) {
			u.Principal = Answered(Validity{}, errors.New("no such file"))
		}},
		{PrincipalCredential, "Expired", func(u *Upkeep) { u.Principal = between(-day, 0) }},
		{PrincipalCredential, "NotYetValid", func(u *Upkeep) { u.Principal = between(1, day) }},
		{PrincipalCredential, "ExpiringSoon", func(u *Upkeep) {
			u.Principal = between(-90*day, 13*day)
		}},
		{PrincipalCredential, "ExpiringSoon", func(u *Upkeep) { // of a secret
			u.Principal = Answered(Validity{To: now().Add(13 * day)}, nil)
		}},
		{PrincipalCredential, "", func(u *Upkeep) {
			u.Principal = Answered(Validity{To: now().Add(15 * day)}, nil)
		}},
		{PrincipalCredential, "", func(u *Upkeep) { u.Principal = between(-90*day, 15*day) }},
		{PrincipalCredential, "", func(u *Upkeep) { u.Principal = between(-day, 2*day) }},
		{"ProviderAnswers", "NotAnswered", func(u *Upkeep) {
			u.Polls = &Polls{Answered: ago(unanswered), Error: "connection refused", Failures: 2}
		}},
		{"ProviderAnswers", "NotAnswered", func(u *Upkeep) { // it never has
			u.Polls = &Polls{First: ago(unanswered), Error: "connection refused", Failures: 2}
		}},
		{"ProviderAnswers", "NotAnswered", func(u *Upkeep) { // nor since a recent start
			u.Polls = &Polls{First: ago(unanswered - 1), Error: "connection refused", Failures: 2}
		}},
		{"ProviderAnswers", "", func(u *Upkeep) {
			u.Polls = &Polls{Answered: ago(unanswered - 1), Error: "connection refused", Failures: 9}
		}},
		{"ProviderAnswers", "", func(u *Upkeep) {
			u.Polls = &Polls{Answered: ago(day), Error: "connection refused", Failures: 1}
		}},
		{"ProviderAnswers", "", func(u *Upkeep) { u.Polls = &Polls{Answered: ago(day)} }},
		{"ProviderAnswers", "", func(u *Upkeep) { u.Polls = nil }},
		{"ProviderAnswers", "", func(u *Upkeep) {
			u.Polls = &Polls{Answered: ago(day), Failures: 9, Second: SecondRefused}
		}},
		{"OnlyMachine", "SecondMachine", func(u *Upkeep) { u.Polls = &Polls{Second: SecondRefused} }},
		{"OnlyMachine", "SecondMachine", func(u *Upkeep) { u.Polls = &Polls{Second: SecondSeen} }},
		{"OnlyMachine", "", func(u *Upkeep) { u.Polls = &Polls{} }},
		{"OnlyMachine", "", func(u *Upkeep) { u.Polls = nil }},
	} {
		e := good()
		tt.change(e.Upkeep)
		c := condition(t, tt.name, e)
		switch {
		case tt.reason == "" && c.Status != True, tt.reason != "" && c.Reason != tt.reason:
			t.Errorf("%s is %s %s, want %q: %s", tt.name, c.Status, c.Reason, tt.reason, c.Message)
		case c.Status == False && (c.Owner == "" || c.Message == ""):
			t.Errorf("%s %s does not say who and what: %+v", tt.name, c.Reason, c)
		}
		if e.Upkeep = nil; condition(t, tt.name, e).Reason != notChecked {
			t.Errorf("%s says something without evidence", tt.name)
		}
	}
	e := good()
	e.Upkeep.Polls = &Polls{First: ago(1), Error: "refused", Failures: 2}
	if c := condition(t, "ProviderAnswers", e); c.Status != Unknown {
		t.Errorf("a provider that has not answered since the start of the agent: %+v", c)
	}
	e.Upkeep.Polls = &Polls{Answered: ago(day), Error: "it answers 403", Failures: 9}
	if c := condition(t, "ProviderAnswers", e); strings.Contains(c.Message, "not answered") ||
		!strings.Contains(c.Message, "has accepted no poll since 2026-11-20T12:00:00Z") {
		t.Errorf("a provider that refuses: %+v", c)
	}
	e.Wanted.ContinuousMonitoring = false
	e.Upkeep.Polls = &Polls{Answered: ago(day), Error: "refused", Failures: 9}
	if c := condition(t, "ProviderAnswers", e); c.Status != True {
		t.Errorf("a node that does not follow: %+v", c)
	}
	e.Wanted.Agent.NodeName = "localhost.localdomain"
	c := condition(t, "HostNameStable", e)
	if c.Reason != "HostNameNotUnique" || c.Owner != OwnerConfiguration {
		t.Errorf("a machine called localhost: %+v", c)
	}
}

// What dpkg tells, the first thing to do first.
func TestPackages(t *testing.T) {
	x := &Examined{Examination: host.Examination{Unfinished: []string{"a"},
		Upgradable: []string{"b", "c"}, Held: []string{"d"}}}
	e := Evidence{Examined: x}
	for _, want := range []struct{ reason, command string }{
		{"Unfinished", "`dpkg --configure -a`"}, {"RuntimeUpgraded", "`apt-mark hold b c`"},
		{"PackageHeld", "`apt-mark unhold d`"}, {"AsExpected", ""},
	} {
		c := packagesInOrder(e)
		if c.Reason != want.reason || !strings.Contains(c.Message, want.command) {
			t.Errorf("%+v, want %s with %s", c, want.reason, want.command)
		}
		switch want.reason {
		case "Unfinished":
			x.Unfinished = nil
		case "RuntimeUpgraded":
			x.Upgradable = nil
		case "PackageHeld":
			x.Held = nil
		}
	}
}
