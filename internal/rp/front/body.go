package front

import (
	"cmp"
	"errors"
	"io"
	"mime"
	"net/http"

	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/machinekey"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// maxBody bounds a request body, unless its route has a bound of its own: ARM's limit is 4 MB, ours
// need a few kilobytes.
const maxBody = 256 << 10

// readBody reads the body of methods that have one.
func (a *API) readBody(w http.ResponseWriter, r *request) error {
	if r.Method != http.MethodPut && r.Method != http.MethodPost {
		return nil
	}
	r.bodyRead = true
	most := cmp.Or(r.route.maxBody, maxBody)
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(most)))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return arm.Errorf(413, "RequestContentTooLarge",
			"The request content is larger than %d bytes.", most)
	}
	if err != nil {
		return arm.Errorf(400, "InvalidRequestContent", "The request content could not be read.")
	}
	if len(body) > 0 {
		kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if err != nil || kind != "application/json" {
			return arm.Errorf(415, "UnsupportedMediaType",
				"The content media type '%s' is not supported. Only 'application/json' is "+
					"supported.", shorten(r.Header.Get("Content-Type")))
		}
	}
	if want := r.caller.BodyDigest; want != "" && want != machinekey.Digest(body) {
		return badToken("It is for another body.")
	}
	r.body = body
	if r.route.plain {
		return flexnode.DecodeOptional(body, &struct{}{})
	}
	return nil
}
