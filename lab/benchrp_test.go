package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

func TestMetric(t *testing.T) {
	const text = `# HELP nodes by state
nodes{ready="True",state="Succeeded"} 10
nodes{ready="True",state="Updating"} 2
nodes{ready="False",state="Succeeded"} 100
nodes_total 5
bytes 1.5e+06
`
	for _, tt := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"nodes", nil, 112}, {"nodes", []string{`ready="True"`}, 12}, {"nodes_total", nil, 5},
		{"bytes", nil, 1.5e6}, {"none", nil, 0},
		{"nodes", []string{`ready="True"`, `state="Updating"`}, 2},
	} {
		if got := metric(text, tt.name, tt.labels...); got != tt.want {
			t.Errorf("%s %v: %v, want %v", tt.name, tt.labels, got, tt.want)
		}
	}
}

// Of a hundred changes the second slowest counts, and one that came before counts as 0.
func TestAfter(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	var from, to []time.Time
	for n := range 200 {
		from, to = append(from, at), append(to, at.Add(time.Duration(n-100)*time.Second))
	}
	if got := after(from, to); got != 98*time.Second {
		t.Error(got)
	}
	if got := after(to, to); got != 0 {
		t.Error(got)
	}
	if got := after(from[:50], to[:50]); got != 0 {
		t.Errorf("what came before took %s", got)
	}
}

// The fleet's reports are valid and have all sections.
func TestBenchReport(t *testing.T) {
	for _, n := range []int{0, 1, 99_999} {
		text, err := benchReport(n, fmt.Sprint(1795255000+n%600))
		if err != nil {
			t.Fatal(err)
		}
		r, err := flexnode.ReadReport(text)
		if err != nil {
			t.Fatalf("the report of %d: %v", n, err)
		}
		if r.Components == nil || r.Config == nil || r.Drift == nil || len(r.Conditions) < 2 {
			t.Errorf("the report of %d is not full: %s", n, text)
		}
	}
}

// The agents' tokens differ and are verified with the published keys.
func TestBenchTokens(t *testing.T) {
	i, err := newBenchIssuer("api://x")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "keys")
	if err := i.publish(file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := keyfunc.NewJWKSetJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		claims := jwt.MapClaims{}
		text, failed := i.token(n)
		_, err := jwt.ParseWithClaims(text, claims, keys.Keyfunc)
		if err != nil || failed != nil || claims["appid"] != benchIdentity(n) ||
			claims["aud"] != "api://x" {
			t.Errorf("the token of %d: %v %v %v", n, claims, failed, err)
		}
	}
}
