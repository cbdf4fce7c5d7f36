package azuresim

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// login is a pending sign-in by device code (RFC 8628).
type login struct {
	device, user string
	clientID     string
	scope        string
	expires      time.Time
	oid          string // of the user who approved it
}

// deviceLifetime is the time that a user has to enter the code.
const deviceLifetime = 15 * time.Minute

func (s *Sim) deviceCode(w http.ResponseWriter, r *http.Request) {
	l := &login{device: random(), user: strings.ToUpper(random()[:9]),
		clientID: r.PostFormValue("client_id"), expires: s.now().Add(deviceLifetime)}
	l.scope = r.PostFormValue("scope") + r.PostFormValue("resource")
	s.mu.Lock()
	s.logins[l.device] = l
	s.mu.Unlock()
	page := origin(r) + "/devicelogin"
	arm.WriteJSON(w, http.StatusOK, map[string]any{
		"user_code": l.user, "device_code": l.device, "verification_uri": page,
		"verification_url": page,
		"expires_in":       int(deviceLifetime.Seconds()), "interval": 1,
		"message": fmt.Sprintf("To sign in, use a web browser to open the page %s and enter the "+
			"code %s to authenticate.", page, l.user),
	})
}

func random() string {
	b := make([]byte, 24)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	return strings.NewReplacer("-", "x", "_", "y").Replace(base64.RawURLEncoding.EncodeToString(b))
}

// Approve signs a user in with the code that a device shows. It reports whether both the code and
// the user exist.
func (s *Sim) Approve(code, user string) bool {
	s.start()
	u, ok := s.user(func(u User) bool { return strings.EqualFold(u.Name, user) })
	if !ok {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.logins {
		if strings.EqualFold(l.user, code) && s.now().Before(l.expires) {
			l.oid = u.ObjectID
			return true
		}
	}
	return false
}

var devicePage = template.Must(template.New("").Parse(`<!DOCTYPE html>
<html><head><title>Sign in to your device</title></head><body>
<h1>Enter code</h1>{{with .}}<p>{{.}}</p>{{end}}
<form method="post"><label>Code <input name="code" autofocus></label>
<label>User <input name="user"></label> <button>Next</button></form></body></html>
`))

// deviceLogin serves the page on which a user enters the code. This Azure has no passwords: a name
// is enough.
func (s *Sim) deviceLogin(w http.ResponseWriter, r *http.Request) {
	text := ""
	if r.Method == http.MethodPost {
		text = "That code did not work. Check the code and try again."
		if s.Approve(r.PostFormValue("code"), r.PostFormValue("user")) {
			text = "You have signed in. You may now close this window."
		}
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = devicePage.Execute(w, text)
}

func (s *Sim) redeemDeviceCode(w http.ResponseWriter, r *http.Request) {
	// MSAL for Python sends both
	code := first(r.PostFormValue("device_code"), r.PostFormValue("code"))
	s.mu.Lock()
	l, ok := s.logins[code]
	s.mu.Unlock()
	switch {
	case !ok:
		problem{400, 70000, "invalid_grant",
			"The provided value for the 'device_code' parameter is not valid."}.write(w)
	case !s.now().Before(l.expires):
		problem{400, 70020, "expired_token", "The code has expired."}.write(w)
	case l.oid == "":
		problem{400, 70016, "authorization_pending",
			"OAuth 2.0 device flow error. Authorization is pending. Continue polling."}.write(w)
	default:
		s.mu.Lock()
		delete(s.logins, code)
		s.mu.Unlock()
		s.grantUser(w, r, l.oid, l.clientID, l.scope)
	}
}

// refresh exchanges a refresh token for an access token, also for another resource.
func (s *Sim) refresh(w http.ResponseWriter, r *http.Request, what string) {
	s.mu.Lock()
	oid, ok := s.sessions[r.PostFormValue("refresh_token")]
	s.mu.Unlock()
	if !ok {
		problem{400, 700082, "invalid_grant",
			"The refresh token has expired due to inactivity or is not known."}.write(w)
		return
	}
	s.grantUser(w, r, oid, r.PostFormValue("client_id"), what)
}

func (s *Sim) grantUser(w http.ResponseWriter, r *http.Request, oid, clientID, scope string) {
	u, ok := s.user(func(u User) bool { return u.ObjectID == oid })
	aud := ""
	for _, one := range strings.Fields(scope) {
		if a := s.audience(r, one); a != "" {
			aud = a
		}
	}
	if aud == "" {
		aud = origin(r) + "/"
	}
	if !ok {
		problem{400, 50020, "invalid_grant", "The user does not exist in the tenant."}.write(w)
		return
	}
	c := claims{AppID: clientID, AppIDACR: "0", IDTyp: "user", OID: oid, UPN: u.Name, Name: u.Name,
		SCP: "user_impersonation"}
	c.Aud = aud
	about := c
	about.Aud, about.PreferName = clientID, u.Name
	idToken, _, err := s.sign(r, about)
	if err != nil {
		problem{500, 90006, "server_error",
			"A transient error has occurred. Please try again."}.write(w)
		return
	}
	session := random()
	s.mu.Lock()
	s.sessions[session] = oid
	s.mu.Unlock()
	s.grant(w, r, c, scope, map[string]any{"refresh_token": session, "id_token": idToken,
		"client_info": clientInfo(oid, s.tenant()), "scope": scope})
}
