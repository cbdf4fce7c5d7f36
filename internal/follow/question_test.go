package follow

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/identity"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// token is a credential with one token.
type token string

func (t token) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: string(t), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// begin asks whether a node may begin with version 8, in the ways to some endpoints.
func begin(t *testing.T, provider http.HandlerFunc, endpoints ...string) error {
	t.Helper()
	client := NewClient(nil, nil)
	client.Transport = breaking{roundTrip{provider}}
	q := Question{
		Resource: Resource{ID: nodeID, UID: nodeUID}, Alive: func() {},
		Client:   func(config.Config) *http.Client { return client },
		Identity: func(config.Config) (identity.Credential, error) { return token("t"), nil },
	}
	for _, at := range endpoints {
		var c config.Config
		c.ContinuousMonitoring, c.Azure.ResourceManagerEndpoint = true, at
		c.Azure.ServicePrincipal = &config.ServicePrincipal{ClientID: "c", TenantID: "t"}
		q.Ways = append(q.Ways, MannerOf(c))
	}
	return Begin(t.Context(), q, "8")
}

// TestBegin holds how the answers to the question whether a change may begin are read.
func TestBegin(t *testing.T) {
	json := func(text string) http.HandlerFunc { return answer(200, "application/json", text) }
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		hold   string // the word, "-" for none
		again  time.Duration
		says   string
	}{
		"granted": {answer: json(`{"grantedSeconds":1500,"another":true}`)},
		"held": {answer: json(`{"hold":"NoSlot","reason":"two others","retryAfter":60}`),
			hold: "NoSlot", again: time.Minute, says: "(NoSlot): two others"},
		"held, and to be asked at once": {answer: json(`{"hold":"X","retryAfter":-1}`),
			hold: "X", again: holdLeast},
		"held for years": {answer: json(`{"hold":"X","retryAfter":2000000000}`),
			hold: "X", again: maxPause},
		"a long word": {answer: json(`{"hold":"` + strings.Repeat("x", 5000) + `"}`),
			hold: strings.Repeat("x", 297) + "...", again: holdLeast},
		"neither":           {answer: json(`{}`), hold: "-", says: "neither grants nor holds"},
		"fewer than none":   {answer: json(`{"grantedSeconds":-5}`), hold: "-"},
		"no JSON":           {answer: answer(200, "text/html", "<html>"), hold: "-", says: "sign-in"},
		"refused":           {answer: answer(403, "application/json", `{}`), hold: "-", says: "403"},
		"it does not exist": {answer: tombstone(nodeUID), hold: "-", says: "404"},
		"no network": {answer: func(http.ResponseWriter, *http.Request) { panic("no") }, hold: "-",
			says: "cannot ask the provider"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := begin(t, func(w http.ResponseWriter, r *http.Request) {
					if !strings.HasSuffix(r.URL.Path, "/beginChange") ||
						r.Header.Get("x-ms-flexnode-uid") != nodeUID {
						t.Errorf("it asks %s", r.URL)
					}
					tt.answer(w, r)
				}, "https://a.example")
				hold, held := errors.AsType[*transition.HoldError](err)
				if held != (tt.hold != "") || err != nil && !held {
					t.Fatalf("the error is %v", err)
				}
				if !held {
					return
				}
				o := transition.Of(fmt.Errorf("x: %w", err))
				if tt.hold == "-" {
					if hold.Hold != "" || o.Kind != transition.Failed {
						t.Errorf("%+v, which %s", hold, o.Kind)
					}
				} else if hold.Hold != tt.hold || o.Kind != transition.Waits ||
					!o.RetryAt.Equal(time.Now().Add(tt.again)) {
					t.Errorf("%+v, which %s", hold, o.Kind)
				}
				if !strings.Contains(err.Error(), tt.says) {
					t.Errorf("it says %q", err)
				}
			})
		})
	}
}

// The former way is tried where the configured one does not answer, and not where it holds.
func TestBeginInAnotherWay(t *testing.T) {
	for name, tt := range map[string]struct{ a, b, want, asked string }{
		"answered": {a: `{"grantedSeconds":60}`, asked: "a.example"},
		"held":     {a: `{"hold":"NoSlot"}`, want: "NoSlot", asked: "a.example"},
		"silent":   {b: `{"grantedSeconds":60}`, asked: "a.example b.example"},
		"both":     {want: "cannot ask", asked: "a.example b.example"},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			err := begin(t, func(w http.ResponseWriter, r *http.Request) {
				asked = append(asked, r.URL.Host)
				text := map[string]string{"a.example": tt.a, "b.example": tt.b}[r.URL.Host]
				if text == "" {
					panic("no network")
				}
				answer(200, "application/json", text)(w, r)
			}, "https://a.example", "https://b.example")
			if got := strings.Join(asked, " "); got != tt.asked || (err == nil) != (tt.want == "") ||
				err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("asked %q: %v", got, err)
			}
		})
	}
}

// An answer that comes after the seconds that it grants is of no use.
func TestBeginCountsFromTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		err := begin(t, func(w http.ResponseWriter, r *http.Request) {
			if asked++; asked == 1 {
				time.Sleep(20 * time.Second)
			}
			answer(200, "application/json", `{"grantedSeconds":15}`)(w, r)
		}, "https://a.example")
		if err != nil || asked != 2 {
			t.Errorf("asked %d times: %v", asked, err)
		}
	})
}

// A poll that is answered early without another offer tells that what waits may begin.
func TestPollIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tt := range map[string]struct {
			after   time.Duration
			applied string
			want    bool
		}{
			"early": {10 * time.Second, "wait=25", true}, "late": {25 * time.Second, "wait=25", false},
			"it does not wait": {0, "", false}, "strange": {0, "wait=x", false},
		} {
			client := NewClient(nil, nil)
			client.Transport = roundTrip{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(tt.after)
				w.Header().Set("Preference-Applied", tt.applied)
				w.WriteHeader(http.StatusNotModified)
			})}
			r := Resource{Client: client, Endpoint: "https://a.example", ID: nodeID,
				Token: func(context.Context) (string, error) { return "t", nil }}
			got, err := r.Poll(t.Context(), "5", 25*time.Second)
			if err != nil || got.Woken != tt.want {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		}
	})
}
