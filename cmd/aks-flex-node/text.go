package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/health"
)

func writePlan(w io.Writer, r inspect.Report) {
	if r.Drains {
		row(w, "drain", true, "the pods move to other nodes first")
	}
	for i, e := range r.Changes {
		row(w, string(e.Step), i == 0 || e.Step != r.Changes[i-1].Step, e.Action)
	}
	for i, d := range r.Downloads {
		row(w, "download", i == 0, fmt.Sprintf("%s %s (%s)", d.Name, d.Version, size(d.Size)))
	}
	if len(r.Hosts) > 0 {
		row(w, "from", true, strings.Join(r.Hosts, " "))
	}
}

// row writes a line of a group, of which the first line has the group's name.
func row(w io.Writer, name string, first bool, text string) {
	if !first {
		name = ""
	}
	fmt.Fprintf(w, "%-12s %s\n", name, text)
}

func writeDrift(w io.Writer, r inspect.Report) {
	for _, e := range r.Changes {
		fmt.Fprintf(w, "%s\n  expected  %s\n  found     %s\n", e.Key, e.Expected, e.Found)
	}
}

func size(n int64) string {
	if n == 0 {
		return "size unknown"
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}

// moment formats a time for people: local, with the zone.
func moment(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 MST") }

func writeStatus(w io.Writer, s inspect.Status) {
	ready := "Ready"
	if s.Ready != "True" {
		ready = "NOT Ready: " + s.Reason
	}
	fmt.Fprintf(w, "Node        %s, %s\n", s.NodeName, ready)
	fmt.Fprintf(w, "Cluster     %s\n", s.Server)
	fmt.Fprintf(w, "Identity    %s\n", s.Identity)
	if s.ArcMachine != "" {
		fmt.Fprintf(w, "Arc         %s\n", s.ArcMachine)
	}
	fmt.Fprintf(w, "Versions    kubernetes %s, containerd %s, runc %s\n",
		s.Kubernetes, s.Containerd, s.Runc)
	for _, cidr := range s.PodCIDRs {
		fmt.Fprintf(w, "Pods        %s\n", cidr)
	}
	for _, u := range s.Units {
		state := "running"
		if !u.Active {
			state = "STOPPED"
		}
		fmt.Fprintf(w, "Service     %s %s\n", u.Name, state)
	}
	writeService(w, s.Service)
	if t := s.Transition; t != nil {
		fmt.Fprintf(w, "Under way   %s, phase %s, since %s\n", t.Kind, t.Phase, moment(t.Began))
	}
	for _, r := range s.Rejected {
		fmt.Fprintf(w, "Rejected    %.12s at %s: %s\n", r.Generation, moment(r.At), r.Reason)
		for _, line := range r.Log {
			fmt.Fprintf(w, "            | %s\n", line)
		}
	}
	drift := "none"
	for _, c := range s.Conditions {
		switch {
		case c.Status == health.False:
			fmt.Fprintf(w, "Condition   %s %s: %s\n", c.Type, c.Reason, c.Message)
		case c.Type == health.HostAsConfigured && c.Status == health.Unknown:
			drift = fmt.Sprintf("unknown (driftPolicy %s): %s", s.DriftPolicy, c.Message)
		}
	}
	for _, d := range s.Pending {
		fmt.Fprintf(w, "Pending     %s\n", d.Action)
	}
	if len(s.Drift)+len(s.Pending) == 0 {
		fmt.Fprintln(w, "Drift       "+drift)
	}
	for _, d := range s.Drift {
		fmt.Fprintf(w, "Drift       %s: expected %s, found %s\n", d.Key, d.Expected, d.Found)
	}
}

func writeService(w io.Writer, is *inspect.Work) {
	if is == nil {
		fmt.Fprintln(w, "Agent       not running: systemctl start aks-flex-node-agent")
		return
	}
	doing := ""
	if is.Job != "rest" {
		doing = ", at work: " + is.Job
		if is.Doing != "" {
			doing += " (" + is.Doing + ")"
		}
	}
	fmt.Fprintf(w, "Agent       %s, pid %d, since %s%s\n", is.Version, is.PID,
		moment(is.Started), doing)
	if p := is.Polls; p != nil {
		fmt.Fprintf(w, "Provider    asked at %s: %s; version %s received, %s applied\n",
			moment(p.Last), p.Result, cmp.Or(p.Received, "-"), cmp.Or(p.Applied, "-"))
		if !p.Signed.IsZero() {
			expired := ""
			if time.Now().After(p.Certified) {
				expired = ", which has expired"
			}
			fmt.Fprintf(w, "            version signed at %s by a key that is certified until %s%s\n",
				moment(p.Signed), moment(p.Certified), expired)
		}
		if p.Error != "" {
			fmt.Fprintf(w, "            %s; asking again at %s\n", p.Error, moment(p.Next))
		}
	}
	const shown = 5
	for _, e := range is.Events[max(0, len(is.Events)-shown):] {
		fmt.Fprintf(w, "Event       %s drift %s: %s\n", moment(e.At), e.What, e.Key)
	}
}
