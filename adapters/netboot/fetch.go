package netboot

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/better-compute/metal/domain/fault"
)

// FetchScript gets the script of a machine, as firmware with iPXE does.
func FetchScript(ctx context.Context, client *http.Client, site, mac string) (Boot, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, ScriptURL(site, mac), nil)
	if err != nil {
		return Boot{}, fault.Wrap(err, fault.InvalidConfig, "the site's URL is not valid")
	}
	text, err := do(client, req)
	if err != nil {
		return Boot{}, err
	}
	return ParseScript(string(text))
}

// FetchToken gets the join token that a boot's reference stands for, from whichever of the site's boot servers has it. It is given
// once: a caller that does not get the answer has to boot again. UNAVAILABLE: none of them could say; one may in a moment.
func FetchToken(ctx context.Context, client *http.Client, b Boot, macs []string, productUUID string) (string, error) {
	body, err := json.Marshal(TokenRequest{Ref: b.Ref, MACs: macs, ProductUUID: productUUID})
	if err != nil {
		return "", fault.Wrap(err, fault.Internal, "the request can't be written as JSON")
	}
	var failed error
	for _, site := range Sites(b.Site) {
		token, err := fetchToken(ctx, client, site, body)
		if err == nil {
			return token, nil
		}
		if failed == nil || fault.CodeOf(failed) == fault.Unavailable { // who knows better than to ask again, knows
			failed = err
		}
	}
	return "", failed
}

func fetchToken(ctx context.Context, client *http.Client, site string, body []byte) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(site, "/")+pathToken, bytes.NewReader(body))
	if err != nil {
		return "", fault.Wrap(err, fault.InvalidConfig, "the site's URL is not valid")
	}
	req.Header.Set("Content-Type", "application/json")
	text, err := do(client, req)
	if err != nil {
		return "", err
	}
	var answer TokenAnswer
	if err := json.Unmarshal(text, &answer); err != nil || answer.Token == "" {
		return "", fault.New(fault.Unavailable, "the site's answer has no token")
	}
	return answer.Token, nil
}

func do(client *http.Client, req *http.Request) ([]byte, error) {
	answer, err := client.Do(req)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "the site's boot server can't be reached")
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(io.LimitReader(answer.Body, scriptMost+1))
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "the boot server's answer broke off")
	}
	if answer.StatusCode == http.StatusOK {
		return text, nil
	}
	var p problem
	if json.Unmarshal(text, &p) != nil || p.Code == "" {
		return nil, fault.New(fault.Unavailable, "the boot server answered %s", answer.Status)
	}
	return nil, fault.New(fault.Code(p.Code), "%s", p.Detail).WithRemedy(p.Remedy)
}
