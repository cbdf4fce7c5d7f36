package lab

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/lab/load"
)

// Script holds how an operator's script at full speed affects a fleet's polls.
type Script struct {
	// Answered and Refused count the script's requests; a refusal is a 429 with Retry-After.
	Answered, Refused int
	// Polls is the 99th percentile of the agents' polls meanwhile.
	Polls time.Duration
}

const (
	// scriptRate is the number of the script's requests per second, half of them lists and half PUTs,
	// over scriptConnections connections for scriptTime.
	scriptRate        = 1000
	scriptConnections = 50
	scriptTime        = 30 * time.Second
	scriptAssignment  = "eeeeeeee-0000-4000-8000-aaaaaaaaaaaa"
)

// Script polls at the rate of 100,000 nodes and runs the script beside: a caller with all rights
// but no exemption from limits, which ignores refusals.
func (b *ProviderBench) Script(ctx context.Context) (got Script, err error) {
	token, err := b.scriptToken(ctx)
	if err != nil {
		return got, err
	}
	polled := min(connected, b.stored/2) // the script changes the other nodes
	agents, err := b.connect(ctx, polled)
	if err != nil {
		return got, err
	}
	defer agents.Close()
	script, err := b.script(token, polled).Open(ctx, scriptConnections)
	if err != nil {
		return got, err
	}
	defer script.Close()
	var both sync.WaitGroup
	var failed error
	both.Go(func() { _, failed = script.Pace(ctx, scriptRate, scriptTime) })
	got.Polls, err = agents.Pace(ctx, fleetRate, scriptTime)
	both.Wait()
	got.Answered, got.Refused = script.Answered()
	if err == nil {
		err = failed
	}
	return got, err
}

// script returns alternating lists and PUTs, of nodes from first on.
func (b *ProviderBench) script(token string, first int) load.Target {
	return load.Target{TLS: b.tls, Status: http.StatusOK, Throttled: true,
		Request: func(ctx context.Context, n int) (*http.Request, error) {
			method, url, body := http.MethodGet, ReplicaURL(0)+ClusterID+
				"/flexNodeConfig?api-version="+ProviderAPI, []byte(nil)
			if (n+n/scriptConnections)%2 == 1 { // alternate on each connection too
				at := first + n*7919%(b.stored-first)
				method, url = http.MethodPut, b.url(at)
				body = benchBody(at, fmt.Sprintf("script-%d", n))
			}
			return authorized(ctx, method, url, token, body)
		}}
}

// scriptToken returns a token of a principal that owns the subscription, as the operator does, but
// is not exempt from limits.
func (b *ProviderBench) scriptToken(ctx context.Context) (string, error) {
	who, err := b.lab.Azure()
	if err != nil {
		return "", err
	}
	status, text, err := b.lab.ARM(ctx, http.MethodPut, AzureURL, "/subscriptions/"+Subscription+
		"/providers/Microsoft.Authorization/roleAssignments/"+scriptAssignment, "2022-04-01",
		object{"properties": object{"principalId": who.Unprivileged.ObjectID,
			"principalType": "ServicePrincipal", "roleDefinitionId": "/subscriptions/" +
				Subscription + "/providers/Microsoft.Authorization/roleDefinitions/" + roleOwner}})
	if err != nil {
		return "", err
	}
	if !slices.Contains([]int{http.StatusOK, http.StatusCreated, http.StatusConflict}, status) {
		return "", fmt.Errorf("cannot give the script a role: %d %s", status, text)
	}
	return b.lab.TokenAt(ctx, who.Unprivileged, ProviderURL)
}
