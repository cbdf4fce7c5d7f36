package progress

import "time"

// transfers adds up the downloads that run at the same time.
type transfers struct {
	began  time.Time // when the first of them began
	byName map[string]transfer
}

type transfer struct {
	done, total int64
	finished    bool
}

// progress notes how far a download has come. The first one after all have finished begins anew, so
// that the rate is not that of long ago.
func (t *transfers) progress(name string, done, total int64) {
	if !t.active() {
		t.began, t.byName = time.Now(), map[string]transfer{}
	}
	t.byName[name] = transfer{done: done, total: max(total, done)}
}

// done notes that a download has arrived, also one whose size nobody knew.
func (t *transfers) done(name string) {
	if one, known := t.byName[name]; known {
		t.byName[name] = transfer{done: one.total, total: one.total, finished: true}
	}
}

// active reports whether a download is under way.
func (t *transfers) active() bool {
	for _, one := range t.byName {
		if !one.finished {
			return true
		}
	}
	return false
}

func (t *transfers) sum() (done, total int64) {
	for _, one := range t.byName {
		done += one.done
		total += one.total
	}
	return done, total
}

// rate is in bytes a second.
func (t *transfers) rate() int64 {
	done, _ := t.sum()
	return int64(float64(done) / max(time.Since(t.began).Seconds(), 0.1))
}
