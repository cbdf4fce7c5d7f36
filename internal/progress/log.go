package progress

import "log/slog"

// Log is a View for services: what a person would see goes to the log, and with it to the journal.
// Downloads that go well, and changes of the host, which the engine logs itself, do not.
type Log struct{ Log *slog.Logger }

// Show logs an event. The text of a warning or note is a sentence already, and so the message.
func (l *Log) Show(e Event) {
	text := oneLine(e.Text)
	switch e.Kind {
	case Warning:
		l.Log.Warn(text)
	case Note:
		l.Log.Info(text)
	case StepFailed:
		l.Log.Warn("step failed", "step", string(e.Step), "reason", text)
	case Retry:
		l.Log.Info("download is tried again", "artifact", e.Name, "reason", text)
	case StepDone:
		l.Log.Debug("step done", "step", string(e.Step), "result", text, "took", e.Took)
	case Doing:
		l.Log.Debug("waiting", "step", string(e.Step), "for", text)
	case Fetched:
		l.Log.Debug("download done", "artifact", e.Name, "bytes", e.Total, "took", e.Took)
	case StepBegan, Change, Bytes:
		// too many, and the other events tell their result
	}
}

func (l *Log) Close() {}
