package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// watched answers for a Node, and a watch of it with events.
func watched(t *testing.T, events func(send func(string), r *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			answer(w, Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-1", ResourceVersion: "41"}})
			return
		}
		q := r.URL.Query()
		if q.Get("fieldSelector") != "metadata.name=edge-1" || q.Get("resourceVersion") != "41" ||
			q.Get("timeoutSeconds") != fmt.Sprint(watchFor.Seconds()) ||
			r.Header.Get("Accept") != metadataOnly {
			t.Errorf("watched with %s, %s", r.URL.RawQuery, r.Header.Get("Accept"))
		}
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		events(func(event string) {
			fmt.Fprintln(w, event)
			w.(http.Flusher).Flush()
		}, r)
	}
}

// A deletion is seen whenever it happens within the time of a watch, which is longer than any other
// request may take.
func TestWaitDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := inMemory(t, watched(t, func(send func(string), _ *http.Request) {
			send(`{"type":"MODIFIED"}`)
			time.Sleep(4 * time.Minute)
			send(`{"type":"DELETED"}`)
		}))
		err := c.WaitDeleted(t.Context(), "edge-1")
		if err != nil || time.Since(began) != 4*time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// Every other end of a watch is an error, and none is without end.
func TestWaitDeletedEnds(t *testing.T) {
	for name, test := range map[string]struct {
		handler func(*testing.T) http.HandlerFunc
		is      func(error) bool
	}{
		"by itself": {func(t *testing.T) http.HandlerFunc {
			return watched(t, func(func(string), *http.Request) { time.Sleep(watchFor) })
		}, func(err error) bool { return errors.Is(err, errWatchEnded) }},
		"never": {func(t *testing.T) http.HandlerFunc {
			return watched(t, func(_ func(string), r *http.Request) { <-r.Context().Done() })
		}, func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }},
		"with nonsense": {func(t *testing.T) http.HandlerFunc {
			return watched(t, func(send func(string), _ *http.Request) { send("<html>") })
		}, func(err error) bool { return !errors.Is(err, errWatchEnded) }},
		"without a Node": {func(*testing.T) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				refuse(w, 404, metav1.StatusReasonNotFound, "not found")
			}
		}, NodeMissing},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				err := inMemory(t, test.handler(t)).WaitDeleted(t.Context(), "edge-1")
				if err == nil || !test.is(err) || time.Since(began) > watchFor+2*requestTimeout {
					t.Errorf("%v after %s", err, time.Since(began))
				}
			})
		})
	}
}
