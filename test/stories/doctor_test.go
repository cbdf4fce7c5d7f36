package stories

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/support"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
)

// doctor runs the verb, and fails if it has changed anything.
func (p *patient) doctor(t *testing.T) []health.Diagnosis {
	t.Helper()
	before := p.tree()
	a := p.agent()
	a.Machine, a.Patience = told{a.Machine.(*host.Host), p}, 2*time.Second
	a.Reader = a.Machine
	if p.real {
		a.Dial = nil
	}
	if dial := a.Dial; p.both {
		a.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if conn, err := dial(ctx, network, address); err == nil {
				return conn, nil
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
	}
	given := support.Given{Err: p.given}
	if p.given == nil {
		given.Input = &change.Input{Config: p.config, Origin: "file"}
	}
	list := support.Doctor(t.Context(), a, given, func(string) bool { return true })
	p.same(before)
	return list
}

// least is the minimum number of faults that must be named first.
const least = 28

func TestDoctorNamesWhatIsWrong(t *testing.T) {
	planted, named := 0, 0
	for _, f := range faults() {
		planted++
		t.Run(f.name, func(t *testing.T) {
			p := healthy(t, f.joined)
			f.plant(p)
			list := p.doctor(t)
			if len(list) == 0 || list[0].Type != f.first || !list[0].Found() {
				t.Errorf("first is %s; want %s in\n%s", list[0].Type, f.first, shown(list))
				return
			}
			if d := list[0]; d.Owner == "" || d.Message == "" || d.Layer == "" {
				t.Errorf("the finding does not say what, where and who: %+v", d)
			}
			named++
		})
	}
	fmt.Printf("doctor planted=%d named_first=%d\n", planted, named)
	if planted < 30 || named < least {
		t.Errorf("%d of %d faults are named first", named, planted)
	}
}

// doctor finds nothing on a healthy machine: before, during and after a join.
func TestDoctorFindsNothing(t *testing.T) {
	for _, joined := range []bool{false, true} {
		p := healthy(t, joined)
		const limits = "/run/systemd/system/kubelet.service.d/50-MemoryMax.conf"
		p.write(limits, "[Service]\n")
		p.write("/usr/lib"+kubeadmDropIn, "[Service]\nExecStart=\n")
		p.write("/etc"+kubeadmDropIn, "")
		p.remove("/etc" + kubeadmDropIn)
		if err := os.Symlink("/dev/null", p.root+"/etc"+kubeadmDropIn); err != nil {
			t.Fatal(err)
		}
		for _, d := range p.doctor(t) {
			if d.Type == "OwnersSettings" && !strings.Contains(d.Message, limits) {
				t.Errorf("joined %v: %s does not name %s", joined, d.Message, limits)
			}
			if d.Found() || d.Verdict == health.Unclear && d.Type != health.ClockAccurate {
				t.Errorf("joined %v: %+v", joined, d)
			}
		}
	}
	p := healthy(t, false)
	p.blow(40)
	if _, err := p.bootstrap(); !errors.Is(err, errKilled) {
		t.Fatalf("the error is %v; want a run that was killed", err)
	}
	p.blow(-1)
	notYet := []string{health.ContainerdRunning, health.KubeletRunning}
	for _, d := range p.doctor(t) {
		follows := slices.ContainsFunc(d.Follows, func(cause string) bool {
			return slices.Contains(notYet, cause)
		})
		if d.Found() && !slices.Contains(notYet, d.Type) && !follows {
			t.Errorf("during a join: %+v", d)
		}
	}
}

// If systemd does not answer before a join, that is the only fault: no credential was tried.
func TestDoctorWithoutSystemd(t *testing.T) {
	p := healthy(t, false)
	p.unseen = errors.New("systemd does not answer")
	list := p.doctor(t)
	if first := list[0]; first.Type != health.NodeObserved || first.Owner != health.OwnerMachine ||
		!strings.Contains(first.Message, p.unseen.Error()) || list[1].Found() {
		t.Error(shown(list))
	}
}

// healthy returns a machine without faults.
func healthy(t *testing.T, joined bool) *patient {
	t.Helper()
	p := &patient{world: newWorld(t)}
	p.healthyFiles()
	if joined {
		if _, err := p.bootstrap(); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func shown(list []health.Diagnosis) string {
	var lines []string
	for _, d := range list {
		if d.Found() || d.Verdict == health.Unclear {
			lines = append(lines, fmt.Sprintf("%s %s %s (follows %v): %s", d.Verdict, d.Type, d.Reason,
				d.Follows, d.Message))
		}
	}
	return strings.Join(lines, "\n")
}
