package front

import (
	"strings"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// A request is a span below its caller's; a poll is none.
func TestTraces(t *testing.T) {
	w := newEdge(t)
	spans := tracetest.NewSpanRecorder()
	w.api.Tracer = trace.NewTracerProvider(trace.WithSpanProcessor(spans)).Tracer("test")
	const parent = "0af7651916cd43dd8448eb211c80319c"
	r, _ := w.must(201, "PUT", nodeURL("n"), `{"properties":{}}`,
		"traceparent: 00-"+parent+"-b7ad6b7169203331-01")
	w.caughtUp()
	w.must(304, "GET", nodeURL("n"), "", "If-None-Match: "+r.Header.Get("ETag"))
	ended := spans.Ended()
	last := ended[len(ended)-1]
	if !strings.HasPrefix(last.Name(), "PUT /subscriptions/{subscription}") ||
		last.Parent().TraceID().String() != parent {
		t.Errorf("the span %s below %s", last.Name(), last.Parent().TraceID())
	}
}
