package front

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/machinekey"
	"github.com/Azure/AKSFlexNode/internal/machinekey/verifier"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// machines authenticates machines by tokens signed with their keys, other callers by others.
type machines struct {
	others   Authenticator
	verifier verifier.Verifier
	ring     seal.Ring
	now      func() time.Time
	tokens   tokens
}

// newMachines returns an Authenticator for machines of a provider that is reached at some URLs.
func newMachines(
	others Authenticator, urls []string, ring seal.Ring, now func() time.Time,
) *machines {
	m := &machines{others: others, ring: ring, now: now, tokens: newTokens(200_000, now)}
	m.verifier = verifier.Verifier{Audiences: urls, Now: now, Nonce: m.validUntil}
	return m
}

// Authenticate implements Authenticator.
func (m *machines) Authenticate(r *http.Request) (Caller, error) {
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, machinekey.Scheme) {
		return m.others.Authenticate(r)
	}
	poll := r.Method == http.MethodGet
	if caller, ok := m.tokens.caller(text); ok && poll {
		return caller, nil
	}
	token, caller, err := m.verify(text)
	if err != nil {
		return Caller{}, err
	}
	if bound := token.Request; !poll || bound != (machinekey.Request{}) {
		if bound.Method != r.Method || bound.Path != r.URL.Path || bound.Digest == "" {
			return Caller{}, badToken("It is for another request.")
		}
		caller.BodyDigest, caller.Signed = bound.Digest, token.Signed
		return caller, nil
	}
	m.tokens.remember(text, caller, token.Ends)
	return caller, nil
}

// verify verifies a token. If only its times are wrong, the refusal has a nonce.
func (m *machines) verify(text string) (verifier.Verified, Caller, error) {
	token, err := m.verifier.Verify(text)
	if errors.Is(err, verifier.ErrTime) {
		return token, Caller{}, &refusal{
			answer: arm.Errorf(401, "MachineTokenTime", "The machine's token has expired or is not valid "+
				"yet. Send the request again with a token that contains the nonce of the header %s.",
				strings.ToLower(machinekey.NonceHeader)),
			header: machinekey.NonceHeader, value: m.nonce(),
		}
	}
	if err != nil {
		return token, Caller{}, badToken("")
	}
	uid, err := uuid.Parse(token.UID)
	if err != nil {
		return token, Caller{}, badToken("It does not name a node.")
	}
	return token, Caller{
		MachineKey: token.Thumbprint, UID: uid.String(), Name: "machine " + token.Thumbprint,
		Type: "Machine", Boot: flexnode.Boot{ID: token.Boot, Issued: token.Issued.Truncate(time.Second)},
	}, nil
}

func badToken(why string) error {
	return arm.Errorf(401, "InvalidMachineToken", "%s",
		strings.TrimSpace("The machine's token is invalid. "+why))
}

// nonce returns the nonce of the present time. It makes tokens of machines with wrong clocks valid,
// at all replicas: it is a signed time of the provider.
func (m *machines) nonce() string {
	at := binary.BigEndian.AppendUint64(nil, uint64(m.now().Unix())) // after 1970
	return base64.RawURLEncoding.EncodeToString(signed(m.ring, nonceTimes, "", at))
}

// validUntil returns the time until which a nonce is valid, if it is. Another replica's clock may
// be ahead.
func (m *machines) validUntil(nonce string) (until time.Time, ok bool) {
	data, err := base64.RawURLEncoding.DecodeString(nonce)
	text, genuine := checked(m.ring, nonceTimes, "", data)
	if err != nil || !genuine {
		return until, false
	}
	at := time.Unix(int64(binary.BigEndian.Uint64(text)), 0) // made by a replica
	until = at.Add(machinekey.Lifetime)
	now := m.now()
	return until, now.Before(until) && now.After(at.Add(-leeway))
}

func (c Caller) isMachine() bool { return c.MachineKey != "" }

// authorizeMachine allows a machine what its node may do, and nothing else.
func (a *API) authorizeMachine(r *request) error {
	switch {
	case !r.route.own:
		return r.forbidden(r.scope())
	case r.route.registers: // its handler authorizes
		return nil
	case !r.own:
		if err := a.ownOr(notRegistered(), r, r.principal()); err != nil {
			return err
		}
	}
	return a.checkBoot(r)
}

// checkBoot returns an error for another machine with the node's key. It writes once for each boot.
func (a *API) checkBoot(r *request) error {
	if r.known != nil && r.known.Boot == r.caller.Boot.ID {
		return nil
	}
	of := fair.Bucket{Of: fair.Node, Kind: fair.Refreshes, ID: r.nodeKey() + " boots"}
	node, _ := a.Index.Node(r.nodeKey()) // after an error the boot counts as unknown
	if slices.Contains(node.Value.Boots.Former, r.caller.Boot.ID) {
		of.ID += r.caller.Boot.ID // boots that a machine invents do not use up its rate
	}
	err := a.take(r, of, 0)
	if err == nil {
		err = a.throttleStored(r)
	}
	if err != nil {
		return err
	}
	var is flexnode.BootVerdict
	err = a.change(r, "machine booted", func(v *store.View) error {
		n := a.Store.Nodes.Row(v, r.nodeKey()).Value
		if is = flexnode.CurrentBoot; r.caller.MachineKey != n.MachineKey {
			return nil // the handler compares the row again, and a deleted node has no boots
		}
		var next flexnode.Node
		next, is = n.Booted(r.caller.Boot, a.Seen.Last(r.nodeKey()), a.Now())
		return a.Store.Nodes.Replace(v, r.nodeKey(), n, next)
	})
	switch {
	case err != nil:
		return err
	case is == flexnode.RefusedBoot:
		return secondMachine()
	case is == flexnode.QuickBoot:
		return throttle(time.Minute)
	case is == flexnode.FormerBoot && r.Method != http.MethodGet:
		return badToken("It is from an earlier boot of the machine.")
	}
	return nil
}

// secondMachine returns the error for another machine than the node's.
func secondMachine() error {
	return arm.Errorf(409, "SecondMachine", "Another machine is registered as this node. If this "+
		"machine should be the node, POST regenerateToken and join with the new URL.")
}

func notRegistered() error {
	return arm.Errorf(401, "MachineKeyNotRegistered",
		"The machine's key is not registered for this node. POST registerKey to register it.")
}

func (r *request) address() string {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return at.Addr().String()
}
