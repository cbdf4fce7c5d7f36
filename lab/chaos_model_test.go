package lab

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

// did is an operation in a sequential history.
type did struct {
	in  step
	out outcome
}

var (
	made    = did{step{verb: putOp, value: 1}, outcome{known: true, etag: `"a-5"`}}
	changed = did{step{verb: putOp, value: 2},
		outcome{known: true, exists: true, etag: `"a-6"`}}
	deleted = did{step{verb: deleteOp}, outcome{known: true, exists: true}}
)

func equalPut(etag string) did {
	return did{step{verb: putOp, value: 1}, outcome{known: true, exists: true, etag: etag}}
}

func read(value int, etag string) did {
	return did{step{verb: getOp}, outcome{known: true, exists: true, value: value, etag: etag}}
}

func regenerated(credential string) did {
	return did{step{verb: regenerateOp},
		outcome{known: true, exists: true, credential: credential}}
}

func fetched(credential string, alive bool) did {
	return did{step{verb: bundleOp, credential: credential},
		outcome{known: true, exists: alive, value: 1}}
}

// The model accepts what the provider may do, and nothing else.
func TestChaosModel(t *testing.T) {
	unknownPut := did{step{verb: putOp, value: 2}, outcome{}}
	waited := did{step{verb: putOp, value: 1, url: true}, outcome{known: true, etag: `"a-5"`}}
	tests := map[string]struct {
		history []did
		good    bool
	}{
		"written and read":       {[]did{made, read(1, `"a-5"`)}, true},
		"a lost write":           {[]did{made, changed, read(1, `"a-5"`)}, false},
		"an equal PUT":           {[]did{made, equalPut(`"a-5"`)}, true},
		"an equal PUT, changed":  {[]did{made, equalPut(`"a-6"`)}, false},
		"a version that goes on": {[]did{made, changed, read(2, `"a-6"`)}, true},
		"a version that goes up": {[]did{
			made, deleted, {made.in, outcome{known: true, etag: `"b-6"`}},
		}, true},
		"a version that is again": {[]did{
			made, deleted, {made.in, outcome{known: true, etag: `"b-5"`}},
		}, false},
		"not rendered yet":       {[]did{waited, read(1, `"a-0-4"`), read(1, `"a-5"`)}, true},
		"not rendered any more":  {[]did{waited, read(1, `"a-5"`), read(1, `"a-0-4"`)}, false},
		"made twice":             {[]did{made, made}, false},
		"an unknown write, done": {[]did{made, unknownPut, read(2, `"a-7"`)}, true},
		"an old version":         {[]did{made, unknownPut, read(2, `"a-5"`)}, false},
		"a URL":                  {[]did{made, regenerated("u"), fetched("u", true)}, true},
		"a URL that is lost":     {[]did{made, regenerated("u"), fetched("u", false)}, false},
		"a URL that was replaced": {[]did{
			made, regenerated("u"), regenerated("v"), fetched("u", false),
		}, true},
		"a URL alive after that": {[]did{
			made, regenerated("u"), regenerated("v"), fetched("u", true),
		}, false},
		"a URL after a change": {[]did{
			made, regenerated("u"), changed, fetched("u", true),
		}, false},
		"a URL after a deletion": {[]did{
			made, regenerated("u"), deleted, fetched("u", true),
		}, false},
		"asked for together": {[]did{
			made, regenerated("u"), regenerated(""), fetched("u", true),
		}, true},
		"replaced unseen": {[]did{
			made, regenerated("u"), regenerated(""), fetched("u", false),
		}, true},
		"dead and alive": {[]did{made, regenerated("u"), regenerated(""), fetched("u", false),
			fetched("u", true)}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			good := porcupine.CheckOperations(chaosModel(), historyOf(tt.history))
			if good != tt.good {
				t.Errorf("judged %v", good)
			}
		})
	}
}

// historyOf returns a sequential history.
func historyOf(all []did) []porcupine.Operation {
	var history []porcupine.Operation
	for i, d := range all {
		d.in.node = "n"
		history = append(history, porcupine.Operation{Input: d.in, Output: d.out,
			Call: int64(2 * i), Return: int64(2*i + 1)})
	}
	return history
}

func TestToldAgain(t *testing.T) {
	u, v := regenerated("u"), regenerated("v")
	for _, good := range [][]did{{}, {made, u}, {u, u, regenerated(""), u, v, v}} {
		if key := toldAgain(historyOf(good)); key != "" {
			t.Errorf("%v: %s", good, key)
		}
	}
	bad := historyOf([]did{u, v, u})
	if key := toldAgain(bad); key != "u" {
		t.Errorf("got %q", key)
	}
	bad[2].Call = bad[1].Call // both requests are concurrent
	if key := toldAgain(bad); key != "" {
		t.Errorf("together: %s", key)
	}
}
