package stories

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/api/flexnode/sealed"
	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/diagnose"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/agent/service"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/machinekey"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// provider is a resource provider with one node, without a network.
type provider struct {
	mu sync.Mutex
	// offer is the desired state of the node; one without a bundle was deleted.
	offer   change.Delivery
	changed chan struct{}
	reports []api.Report
	down    bool
	// polls and refreshes answer in its place; nil leaves that to it.
	polls, refreshes func(*http.Request) (*http.Response, error)
	// hosts holds the servers, by host, that answer in its place.
	hosts map[string]func(*http.Request) (*http.Response, error)
	// ahead is the time by which its clock is ahead.
	ahead time.Duration
	// host is the host of the last request, shown its authorization, and hears is called with each
	// request, unless it is nil.
	host, shown string
	hears       func()
	// asked lists the configVersions that the node has asked to begin with, holds is the answer to
	// each; zero grants an hour.
	asked []string
	holds api.ChangeBegun
	// waiting counts the polls that wait.
	waiting int
	// key is the thumbprint of the machine's key, once it is registered; registered counts the
	// requests that register one, and registers is called before and after each, unless it is nil.
	key        string
	registered int
	registers  func()
	// principal is the Azure identity that the machine reports.
	principal string
	// boots lists the tokens that it received, in their order, refuses is the token of another
	// machine, and second makes it report to the machine that there is another.
	boots   []string
	refuses string
	// fresh is an enrolment secret that registers another key, once; "" for none.
	fresh  string
	second bool
	// leaves deletes the Node of a machine that leaves; nil rejects the request.
	leaves func()
	// question is its question to the machine, until it is answered; diagnosed holds the answers.
	question  string
	diagnosed []api.Diagnosed
	// unheard is the error with which an answer is lost; nil for none.
	unheard error
	// arcSecret is the secret that the machine of a deleted node gets, arcLeft that machine's report.
	arcSecret string
	arcLeft   *api.ArcLeft
}

// leave answers a leaving machine.
func (p *provider) leave(w *httptest.ResponseRecorder, r *http.Request) (*http.Response, error) {
	var ask api.Leave
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
		return nil, err
	}
	switch {
	case ask.PublicKey != nil && p.arcSecret == "":
		w.WriteHeader(http.StatusNotFound)
	case ask.PublicKey != nil:
		encapsulated, text, err := sealed.Seal(ask.PublicKey,
			sealed.About{ID: "/flexNodeConfig/edge-1", UID: "u"}, []byte(p.arcSecret))
		if err != nil {
			return nil, err
		}
		answer := api.LeaveSecret{EncapsulatedKey: encapsulated, Ciphertext: text}
		_ = json.NewEncoder(w).Encode(answer) // a recorder takes everything
	case ask.Arc != nil:
		p.set(func() { p.arcLeft = ask.Arc })
		w.WriteHeader(http.StatusNoContent)
	default:
		p.leaves()
		w.WriteHeader(http.StatusNoContent)
	}
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

// offers makes the provider offer a configuration.
func (p *provider) offers(d change.Delivery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.offer = d
	close(p.changed)
	p.changed = make(chan struct{})
}

// said returns the last report of the node.
func (p *provider) said() api.Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.reports) == 0 {
		return api.Report{}
	}
	return p.reports[len(p.reports)-1]
}

func (p *provider) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// RoundTrip implements http.RoundTripper.
func (p *provider) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	p.mu.Lock()
	down, instead, ahead, host := p.down, p.refreshes, p.ahead, p.hosts[r.URL.Host]
	p.host, p.shown = r.URL.Host, r.Header.Get("Authorization")
	if p.hears != nil {
		p.hears()
	}
	p.mu.Unlock()
	if down {
		return nil, errors.New("no route to host")
	}
	if host != nil {
		return host(r)
	}
	action := path.Base(r.URL.Path)
	if refused := p.signed(r, action); refused != nil {
		return refused, nil
	}
	if r.Method == http.MethodGet {
		instead = p.polls
	}
	if instead != nil && action != "reportStatus" && action != "beginChange" &&
		action != "leave" && action != "reportDiagnosis" {
		return instead(r)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
	switch {
	case r.Method == http.MethodGet:
		p.poll(w, r)
	case action == "beginChange":
		p.begin(w, r)
	case action == "reportDiagnosis" && p.unheard != nil:
		return nil, p.unheard
	case action == "reportDiagnosis":
		var d api.Diagnosed
		if err := json.NewDecoder(r.Body).Decode(&d); err != nil {
			return nil, err
		}
		p.set(func() { p.diagnosed, p.question = append(p.diagnosed, d), "" })
	case action == "leave" && p.leaves == nil:
		w.WriteHeader(http.StatusNotFound)
	case action == "leave":
		return p.leave(w, r)
	case action == "reportStatus":
		var report api.Report
		if err := json.NewDecoder(r.Body).Decode(&report); err != nil {
			return nil, err
		}
		p.set(func() { p.reports = append(p.reports, report) })
	default:
		p.refresh(w, r)
	}
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

func (p *provider) begin(w http.ResponseWriter, r *http.Request) {
	var ask api.BeginChange
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, ask.ConfigVersion)
	answer := p.holds
	if answer == (api.ChangeBegun{}) {
		answer.GrantedSeconds = 3600
	}
	_ = json.NewEncoder(w).Encode(answer) // a recorder takes everything
}

func (p *provider) poll(w http.ResponseWriter, r *http.Request) {
	offer, changed := p.now()
	etag := func() string { return offer.URLSHA256 }
	p.set(func() {
		if p.second {
			w.Header().Set(machinekey.SecondHeader, "true")
		}
	})
	if r.Header.Get("If-None-Match") == etag() && r.Header.Get("Prefer") != "" {
		p.set(func() { p.waiting++ })
		select {
		case <-changed:
		case <-time.After(25 * time.Second):
		case <-r.Context().Done():
		}
		p.set(func() { p.waiting-- })
		w.Header().Set("Preference-Applied", "wait=25")
		offer, _ = p.now()
	}
	p.set(func() {
		if p.question != "" {
			w.Header().Set(api.DiagnoseHeader, p.question)
		}
	})
	switch {
	case offer.Bundle == nil:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"error":{"code":"ResourceNotFound","additionalInfo":[{`+
			`"type":"FlexNodeConfigTombstone","info":%s}]}}`, installation().stone("u"))
	case r.Header.Get("If-None-Match") == etag():
		w.WriteHeader(http.StatusNotModified)
	default:
		w.Header().Set("ETag", etag())
		fmt.Fprintf(w, `{"id":%q,"properties":{"configVersion":%q,"resourceUid":"u"}}`,
			offer.Loaded.Resource.ID, offer.Loaded.Resource.ConfigVersion)
	}
}

func (p *provider) now() (change.Delivery, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.offer, p.changed
}

func (p *provider) refresh(w http.ResponseWriter, r *http.Request) {
	var ask api.Refresh
	offer, _ := p.now()
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	bundle := string(offer.Bundle)
	if ask.Joined { // each answer would have another token
		start := strings.Index(bundle, `"bootstrapToken":{`) + len(`"bootstrapToken":{`)
		bundle = bundle[:start] + bundle[start+strings.Index(bundle[start:], "}"):]
	}
	about := sealed.About{ID: offer.Loaded.Resource.ID, UID: offer.Loaded.Resource.UID}
	enc, text, err := sealed.Seal(ask.PublicKey, about, []byte(bundle))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	answer := api.Refreshed{EncapsulatedKey: enc, Ciphertext: text}
	_ = json.NewEncoder(w).Encode(answer) // a recorder takes everything
}

// monitored changes the usual configuration: the node follows its resource, as a service principal.
func monitored(c map[string]any) {
	c["continuousMonitoring"] = true
	azure := c["azure"].(map[string]any)
	azure["tenantId"] = "11111111-1111-1111-1111-111111111111"
	azure["servicePrincipal"] = map[string]any{
		"clientId": "22222222-2222-2222-2222-222222222222", "clientSecret": "s3cret~of.the-node",
	}
}

// following returns the Following of the service's provider; nil without one.
func (s *serviceStory) following(a *change.Agent, live *service.Live) *service.Following {
	if s.provider == nil {
		return nil
	}
	in, err := s.load()
	if err != nil { // it goes on as it is
		c, err := inspect.Applied(s.t.Context(), &a.Env)
		if err != nil {
			s.t.Fatal(err)
		}
		in.Config = *c
	}
	f := service.Follow(s.t.Context(), a, in, live)
	if f != nil {
		f.Diagnose = diagnose.Answers(a, a.Machine)
	}
	return f
}

// followed runs a story of a machine that has joined by a configuration URL and follows.
func followed(t *testing.T, tell func(t *testing.T, s *serviceStory, before string)) {
	t.Helper()
	story(t, func(t *testing.T, s *serviceStory) {
		before := s.tree()
		first := s.delivery("7", monitored, readyTimeout("1m"))
		s.provider = &provider{offer: first, changed: make(chan struct{})}
		if err := change.Receive(t.Context(), s.agent(), first); err != nil {
			t.Fatal(err)
		}
		s.join()
		tell(t, s, before)
	})
}

// An offered version is applied within seconds, and its outcome is reported.
func TestFollows(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.sleep(2 * time.Minute)
		if r := s.provider.said(); r.Config == nil || r.Config.Applied != "7" ||
			r.Components.Agent == "" {
			t.Fatalf("reported %+v", r)
		}
		s.provider.offers(s.delivery("8", monitored, readyTimeout("1m"), pods(42)))
		took := s.until(time.Minute, "the next version is applied", s.takes("42"))
		if took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
		s.until(2*time.Minute, "the version is reported", func() bool {
			c := s.provider.said().Config
			return c != nil && c.Applied == "8" && c.Observed == "8" && c.Failed == nil
		})
		if at := s.provider.said().LastConfigApplied; at == nil || time.Since(*at) > 3*time.Minute {
			t.Errorf("reported that it was applied at %v", at)
		}
		if text := s.read(saved.StateDir + "/config-version.txt"); text != "8\n" {
			t.Errorf("config-version.txt is %q", text)
		}
		s.healthy("42")
	})
}

// Findings on a healthy node are reported while they last, so that the owner sees them without a
// shell on the machine. status finds a provider that is silent for long.
func TestFollowsReportsFindings(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		reported := func(name string) func() bool {
			return func() bool {
				return slices.ContainsFunc(s.provider.said().Conditions, func(c api.Condition) bool {
					return c.Type == name && c.Status == "False" && c.Message != ""
				})
			}
		}
		s.sleep(2 * time.Minute)
		for _, c := range s.provider.said().Conditions {
			t.Errorf("of a healthy node %s is reported: %s %s", c.Type, c.Status, c.Reason)
		}
		s.write("/run/reboot-required", "")
		s.until(3*time.Minute, "the reboot that is needed is reported",
			reported("RebootNotPending"))
		s.healthy("110")
		s.sick.Store(true)
		s.until(3*time.Minute, "the sick kubelet is reported", reported("KubeletHealthy"))
		if first := s.provider.said().Conditions[0]; first.Type != "KubeletHealthy" {
			t.Errorf("%s is reported before what makes the node unhealthy", first.Type)
		}
		s.sick.Store(false)
		silent := func() bool {
			return slices.ContainsFunc(s.is().Conditions, func(c health.Condition) bool {
				return c.Type == "ProviderAnswers" && c.Status == health.False
			})
		}
		s.provider.set(func() { s.provider.down = true })
		if s.sleep(10 * time.Minute); silent() {
			t.Error("the provider is called silent too early")
		}
		s.until(15*time.Minute, "the silent provider is found", silent)
		s.provider.set(func() { s.provider.down = false })
		s.until(10*time.Minute, "the provider answers again", func() bool { return !silent() })
	})
}

// A version that changes nothing on the machine only moves the version.
func TestFollowsAVersionOnly(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		kubelet := s.started()
		s.provider.offers(s.delivery("8", monitored, readyTimeout("1m")))
		s.until(time.Minute, "the version moves", func() bool {
			return s.read(saved.StateDir+"/config-version.txt") == "8\n"
		})
		if n := kubelet(); n != 0 {
			t.Errorf("kubelet was started %d times", n)
		}
	})
}

// A version that does not work is rolled back, reported, and not tried again; the next one is
// tried.
func TestFollowsPastABadVersion(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.onKubelet(func() error {
			if s.takes("42")() {
				return errors.New("kubelet does not like this")
			}
			return nil
		})
		s.provider.offers(s.delivery("8", monitored, readyTimeout("1m"), pods(42)))
		s.until(5*time.Minute, "the failure is reported", func() bool {
			c := s.provider.said().Config
			return c != nil && c.Failed != nil && c.Failed.Version == "8" && c.Applied == "7"
		})
		s.healthy("110")
		text := s.read(saved.StateDir + "/current-config.json")
		if !strings.Contains(text, `"maxPods": 42`) {
			t.Errorf("current-config.json is not what was received last:\n%s", text)
		}
		s.provider.offers(s.delivery("9", monitored, readyTimeout("1m"), pods(43)))
		s.until(2*time.Minute, "the next version is applied", s.takes("43"))
		s.until(2*time.Minute, "no failure is reported", func() bool {
			c := s.provider.said().Config
			return c != nil && c.Failed == nil && c.Applied == "9"
		})
	})
}

// A rollback from a crashing kubelet does not make the previous one wait for its own health: it
// takes seconds.
func TestFollowsPastACrashingKubelet(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.onKubelet(func() error {
			if s.takes("42")() {
				go func() {
					time.Sleep(time.Second)
					if !s.takes("42")() { // another is in its place
						return
					}
					for range 9 {
						s.systemd.Crash("kubelet.service")
					}
					s.systemd.Loop("kubelet.service")
				}()
			}
			return nil
		})
		s.provider.offers(s.delivery("8", monitored, readyTimeout("1m"), pods(42)))
		s.until(5*time.Minute, "the way back", s.takes("42"))
		s.until(2*time.Minute, "the way back", s.takes("110"))
		took := s.until(time.Minute, "the end of the rollback", func() bool {
			_, err := os.Stat(s.root + saved.StateDir + "/transition.json")
			return errors.Is(err, os.ErrNotExist)
		})
		if took > 12*time.Second {
			t.Errorf("the former kubelet was proved %s after it was started", took)
		}
		s.healthy("110")
	})
}

// The provider sets drift policies by kind, which change only the reaction to drift: resources of
// the kind to repair are repaired, others are not.
func TestFollowsDriftPolicies(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		const file = "/etc/sysctl.d/999-aks-flex-node.conf"
		own := s.read(forwardSysctl)
		s.write(forwardSysctl, "0\n")
		s.sleep(5 * time.Minute)
		if !s.reverted() || len(s.drifts()) != 1 {
			t.Fatalf("with the policy report something is repaired: %v", s.drifts())
		}
		s.write(forwardSysctl, own)
		kubelet := s.started()
		policies := func(c map[string]any) {
			c["agent"].(map[string]any)["driftPolicies"] = map[string]any{
				"sysctl": "repair", "unit": "off",
			}
		}
		s.provider.offers(s.delivery("8", monitored, readyTimeout("1m"), policies))
		s.until(time.Minute, "the version is applied", func() bool {
			return s.read(saved.StateDir+"/config-version.txt") == "8\n"
		})
		s.write(forwardSysctl, "0\n")
		s.write(file, "# foreign\n")
		s.until(3*time.Minute, "the repair", func() bool { return !s.reverted() })
		if err := s.systemd.Stop(t.Context(), "kubelet.service"); err != nil {
			t.Fatal(err)
		}
		s.sleep(5 * time.Minute)
		if n := kubelet(); n != 0 {
			t.Errorf("kubelet was started %d times", n)
		}
		if want := []string{"path:" + file}; !slices.Equal(s.drifts(), want) {
			t.Errorf("drift: %v, want %v", s.drifts(), want)
		}
		if d := s.provider.said().Drift; d.LastSeen == nil || time.Since(*d.LastSeen) > 10*time.Minute {
			t.Errorf("reported drift that was last seen at %v", d.LastSeen)
		}
		if s.read(file) != "# foreign\n" {
			t.Error("what is only to be reported is repaired")
		}
		s.until(2*time.Minute, "the version is reported", func() bool {
			r := s.provider.said()
			return r.Config != nil && r.Config.Applied == "8" && r.Drift != nil && r.Drift.Count == 1
		})
	})
}

// Configurations of another node, and invalid ones, change nothing, and the node continues.
func TestFollowsNoNonsense(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		other := s.delivery("8", monitored, func(c map[string]any) {
			c["agent"].(map[string]any)["nodeName"] = "edge-2"
		})
		s.provider.offers(other)
		s.sleep(5 * time.Minute)
		broken := s.delivery("9", monitored, pods(42))
		edited(":42", `:"many"`)(&broken)
		broken.Bundle = installation().signs(t, broken.Bundle)
		s.provider.offers(broken)
		s.sleep(5 * time.Minute)
		s.healthy("110")
		if c := s.provider.said().Config; c.Failed == nil || c.Failed.Version != "9" ||
			!strings.Contains(c.Failed.Message, "maxPods") || c.Applied != "7" {
			t.Errorf("reported %+v", c)
		}
		log := s.log.String()
		if !strings.Contains(log, "edge-2") || !strings.Contains(log, "maxPods") {
			t.Errorf("the log does not tell why:\n%s", log)
		}
		s.provider.offers(s.delivery("10", monitored, readyTimeout("1m"), pods(43)))
		s.until(2*time.Minute, "the next version is applied", s.takes("43"))
	})
}

// A machine that got the configuration of another resource of its name is not wiped when the former
// resource's deletion is seen.
func TestFollowsAnotherResource(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		next := s.delivery("9", monitored, readyTimeout("1m"))
		next.Bundle = []byte(strings.Replace(string(next.Bundle), `"uid":"u"`, `"uid":"v"`, 1))
		next.Loaded.Resource.UID = "v"
		if err := change.Receive(t.Context(), s.agent(), next); err != nil {
			t.Fatal(err)
		}
		s.provider.offers(change.Delivery{})
		s.ends()
		if s.outcome.Kind != transition.Replaced || !s.registered() || s.bundle() == "" {
			t.Errorf("it ended with %v; the Node is there: %t", s.outcome, s.registered())
		}
	})
}

// A node whose resource was deleted gives its machine back, and nothing is left. The provider
// deletes its Node.
func TestFollowsToTheEnd(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, before string) {
		s.cluster.keep = true // no node may delete its own
		s.provider.set(func() {
			s.provider.down = true
			s.provider.leaves = func() {
				s.cluster.mu.Lock()
				defer s.cluster.mu.Unlock()
				s.cluster.remove("edge-1")
			}
		})
		s.sleep(time.Hour)
		s.healthy("110")
		s.provider.set(func() { s.provider.down = false })
		s.provider.offers(change.Delivery{})
		s.ends()
		if s.outcome.Kind != transition.Deleted {
			t.Errorf("it ended with %v", s.outcome)
		}
		s.unlock()
		s.same(before)
		if s.registered() {
			t.Error("the Node is still there")
		}
	})
}

// A provider that cannot delete the Node yet is asked again, before the machine gives up its
// credentials.
func TestFollowsToALateEnd(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, before string) {
		s.cluster.keep = true // no node may delete its own
		s.provider.offers(change.Delivery{})
		s.sleep(3 * time.Minute)
		if !s.registered() {
			t.Fatal("the Node is gone, though no one may delete it yet")
		}
		s.provider.set(func() {
			s.provider.leaves = func() {
				s.cluster.mu.Lock()
				defer s.cluster.mu.Unlock()
				s.cluster.remove("edge-1")
			}
		})
		s.ends()
		if s.outcome.Kind != transition.Deleted {
			t.Errorf("it ended with %v", s.outcome)
		}
		s.unlock()
		s.same(before)
		if s.registered() {
			t.Error("the Node is still there")
		}
	})
}

// A machine that was off for 40 days then learns that its resource was deleted, and leaves. Its
// certificate has expired, but the provider deletes its Node.
func TestFollowsADeletionOfLongAgo(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, before string) {
		s.sleep(2 * time.Minute)
		s.end()
		s.provider.offers(change.Delivery{})
		s.provider.set(func() {
			s.provider.leaves = func() { s.cluster.set(func() { s.cluster.remove("edge-1") }) }
		})
		s.sleep(40 * 24 * time.Hour)
		s.start()
		s.ends()
		if s.outcome.Kind != transition.Deleted || s.registered() {
			t.Errorf("it ended with %v; the Node is there: %t", s.outcome, s.registered())
		}
		s.unlock()
		s.same(before)
	})
}

// A version with another endpoint makes the agent poll there as soon as it is applied.
func TestFollowsElsewhere(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		elsewhere := func(c map[string]any) {
			c["agent"].(map[string]any)["monitoring"] = map[string]any{
				"endpoint": "https://elsewhere.example", "interval": "20s",
			}
		}
		s.provider.offers(s.delivery("8", monitored, readyTimeout("1m"), elsewhere))
		s.until(3*time.Minute, "the provider is asked elsewhere", func() bool {
			s.provider.mu.Lock()
			defer s.provider.mu.Unlock()
			return s.provider.host == "elsewhere.example"
		})
		s.provider.offers(s.delivery("9", monitored, readyTimeout("1m"), elsewhere, pods(43)))
		s.until(2*time.Minute, "the next version is applied", s.takes("43"))
	})
}
