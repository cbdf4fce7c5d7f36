package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/Azure/AKSFlexNode/internal/config"
)

// Need describes the rights that a request to Azure needs, for explaining a refusal.
type Need struct {
	Doing string // completes "cannot ...", such as "read the cluster"
	// Role at Scope would allow it.
	Role, Scope string
	Remedy      string // advice if the error itself suggests nothing better
}

// TokenFor returns the need for a token of the machine's identity for kubelet or the provider.
func TokenFor(whom string, c config.Azure) Need {
	return Need{Doing: "get a token for " + whom, Remedy: map[config.AuthMode]string{
		config.AuthArc: "check the Arc agent: azcmagent show, systemctl status himdsd",
		config.AuthManagedIdentity: "this machine must be an Azure VM, and have the identity " +
			"that azure.managedIdentity names",
	}[c.AuthMode()]}
}

// objections maps Entra ID's error codes to remedies (Microsoft Entra authentication error codes).
var objections = map[int]struct{ problem, remedy string }{
	7000215: {"the service principal's secret is wrong",
		"azure.servicePrincipal.clientSecret must be the secret's value, not its id"},
	7000222: {"the service principal's secret has expired",
		"make a new one (az ad app credential reset --append --id CLIENT-ID) and configure it"},
	700016: {"the application is not known in this tenant",
		"check azure.servicePrincipal.clientId and azure.tenantId"},
	90002: {"Entra ID does not know this tenant", "check azure.tenantId and azure.cloud"},
	700027: {"the certificate is not registered with the application, or has expired",
		"correct azure.servicePrincipal.certificateFile, or add a valid one to the application " +
			"(az ad app credential reset --append --id CLIENT-ID --cert @FILE)"},
	700024: {"Entra ID does not accept the time of the request",
		"check this machine's clock (timedatectl)"},
	65001: {"the permissions of the application have not been consented to",
		"an administrator of the tenant must give consent"},
	500011: {"the tenant does not know the resource that the token is for",
		"check azure.cloud and azure.resourceManagerEndpoint"},
	50020: {"the account is not a member of the tenant",
		"log in with another account: az login --tenant"},
	700082: {"the login has expired", "log in again: az login"},
	50173:  {"the login has been revoked", "log in again: az login"},
}

// Explain wraps an error of Azure with a plain explanation and advice; nil remains nil.
func Explain(err error, need Need) error {
	if err == nil {
		return nil
	}
	problem, remedy := diagnose(err, need)
	if problem == "" {
		problem, remedy = strings.Join(strings.Fields(err.Error()), " "), need.Remedy
	}
	text := fmt.Sprintf("cannot %s: %s", need.Doing, problem)
	if remedy != "" {
		text += "; " + remedy
	}
	return &explained{text: text, cause: err}
}

// Refused reports whether the issuer has refused the credential itself, so that retries do not
// help. An issuer that is unreachable, throttles or fails has not refused it, nor has one that
// finds this machine's clock wrong (AADSTS700024).
func Refused(err error) bool {
	failed, ok := errors.AsType[*azidentity.AuthenticationFailedError](err)
	if !ok || failed.RawResponse == nil || strings.Contains(err.Error(), "AADSTS700024") {
		return false
	}
	refusals := []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden}
	return slices.Contains(refusals, failed.RawResponse.StatusCode)
}

type explained struct {
	text  string
	cause error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.cause }

func diagnose(err error, need Need) (problem, remedy string) {
	if page, ok := errors.AsType[*notAzure](err); ok {
		return page.Error(), "check the proxy, and whether this network requires a login"
	}
	if failed, ok := errors.AsType[*azidentity.AuthenticationFailedError](err); ok {
		if problem, remedy := entra(failed.RawResponse); problem != "" {
			return problem, remedy
		}
	}
	if refused, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return manager(refused, need)
	}
	if name, ok := errors.AsType[*net.DNSError](err); ok {
		return "the name " + name.Name + " does not resolve",
			"check the DNS servers of this machine (resolvectl status), and azure.cloud"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return fmt.Sprintf("cannot connect to %v", op.Addr),
			"check the network, the firewall and the proxy"
	}
	return "", ""
}

func entra(response *http.Response) (problem, remedy string) {
	if response == nil || response.Body == nil {
		return "", ""
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	var body struct {
		Codes []int `json:"error_codes"`
	}
	if err != nil || json.Unmarshal(text, &body) != nil {
		return "", ""
	}
	for _, code := range body.Codes {
		if o, known := objections[code]; known {
			return fmt.Sprintf("%s (AADSTS%d)", o.problem, code), o.remedy
		}
	}
	if response.StatusCode == http.StatusTooManyRequests || response.StatusCode >= 500 {
		return "Entra ID has an internal problem (" + response.Status + ")", "try again later"
	}
	return "", ""
}

func manager(refused *azcore.ResponseError, need Need) (problem, remedy string) {
	missing := []string{"ResourceNotFound", "ResourceGroupNotFound", "SubscriptionNotFound",
		"InvalidSubscriptionId", "NotFound"}
	switch {
	case refused.StatusCode == http.StatusForbidden && need.Role != "":
		return fmt.Sprintf("the identity lacks permission on %s", need.Scope),
			fmt.Sprintf("ask an owner for the role %q there: az role assignment create --role "+
				"%q --scope %s --assignee CLIENT-ID", need.Role, need.Role, need.Scope)
	case refused.ErrorCode == "SubscriptionNotFound":
		return "the subscription does not exist, or the identity has no access to it",
			"check azure.targetCluster.resourceId, azure.subscriptionId and azure.tenantId"
	case slices.Contains(missing, refused.ErrorCode):
		return fmt.Sprintf("%s does not exist", need.Scope), "check azure.targetCluster.resourceId"
	case refused.StatusCode == http.StatusUnauthorized:
		return "Resource Manager does not accept the identity's token (401)",
			"check azure.tenantId and this machine's clock (timedatectl)"
	case refused.StatusCode == http.StatusTooManyRequests:
		return "Resource Manager is throttling this identity (429)", "try again in a few minutes"
	case refused.StatusCode >= 500:
		return fmt.Sprintf("Resource Manager has an internal problem (%d)", refused.StatusCode),
			"try again later"
	}
	return "", ""
}
