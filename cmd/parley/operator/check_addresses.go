package operator

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"

	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/x402/evm"
)

// maxContract limits what is read of a published contract, in bytes.
const maxContract = 8 << 20

// published is what the contract of a server says about the server.
type published struct {
	Servers []struct{ URL string }
	Info    struct {
		Protocols []struct {
			X402 struct{ Network, PayTo, Facilitator string }
		}
	} `json:"x-payment-info"`
}

// checkAddresses checks where the server listens, and whether it can be reached at its public URL.
func (c *check) checkAddresses(ctx context.Context, config server.Config) (found findings) {
	const what = "base URL"
	base, err := url.Parse(config.BaseURL)
	if err != nil || base.Hostname() == "" {
		return nil // told as a wrong setting
	}
	serving := false
	local := settings.IsLoopback(base.Hostname())
	switch contract, err := fetchContract(ctx, config.BaseURL); {
	case notServed(err):
		found.warn(what, config.BaseURL+" is not served yet", "start parley serve, and the proxy in front of it; then run this again")
	case err != nil:
		found.fail(what, fmt.Sprintf("%s cannot be reached: %v", config.BaseURL, err),
			"check the DNS record, the certificate and the proxy, or correct --base-url")
	default:
		serving = true
		found.served(contract, config)
	}
	if base.Scheme != "https" && !local {
		found.warn(what, "it is not encrypted: API keys can be read on the way",
			"use https://, with a proxy in front of the server or --tls-domain")
	}
	for _, address := range []struct{ setting, at string }{{"--listen", c.Listen}, {"--admin-listen", c.AdminListen}} {
		if address.at != "" {
			found.canListen(ctx, address.setting, address.at, serving)
		}
	}
	return found
}

// fetchContract reads the contract that a server publishes.
func fetchContract(ctx context.Context, base string) (contract published, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/openapi.json", nil)
	if err != nil {
		return contract, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return contract, err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return contract, errProxyAlone
	default:
		return contract, fmt.Errorf("/openapi.json returns status %d", response.StatusCode)
	}
	if json.NewDecoder(io.LimitReader(response.Body, maxContract)).Decode(&contract) != nil {
		return contract, errors.New("/openapi.json is not the contract of Parley")
	}
	return contract, nil
}

// errProxyAlone means that a proxy responds which does not reach the server.
var errProxyAlone = errors.New("a proxy responds without a server behind it")

func notServed(err error) bool {
	return errors.Is(err, errProxyAlone) || errors.Is(err, syscall.ECONNREFUSED)
}

// served adds a finding about the server that responds at the base URL.
func (f *findings) served(contract published, config server.Config) {
	const what = "base URL"
	protocols := contract.Info.Protocols
	if len(contract.Servers) == 0 || len(protocols) == 0 {
		f.fail(what, "another service responds at "+config.BaseURL, "correct --base-url, or the proxy")
		return
	}
	var differ []string
	is := protocols[0].X402
	for _, one := range []struct{ setting, here, there string }{
		{"--base-url", config.BaseURL, contract.Servers[0].URL}, {"--payee", config.PayTo, is.PayTo},
		{"--network", config.Network.ID, is.Network}, {"--facilitator-url", config.FacilitatorURL, is.Facilitator},
	} {
		if !strings.EqualFold(one.here, one.there) {
			differ = append(differ, fmt.Sprintf("%s %s", one.setting, one.there))
		}
	}
	if differ == nil {
		f.ok(what, config.BaseURL+" serves the contract with these settings")
		return
	}
	f.warn(what, "the server there has other settings: "+strings.Join(differ, ", "),
		"restart it with these settings, or check with its settings")
}

// canListen adds a finding about an address to listen on. It may be in use if the server runs.
func (f *findings) canListen(ctx context.Context, setting, address string, serving bool) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	inUse := errors.Is(err, syscall.EADDRINUSE)
	switch {
	case err == nil && listener.Close() == nil:
		f.ok(setting, address+" is free")
	case inUse && serving:
		f.ok(setting, address+" is in use, as expected of a server that runs")
	case inUse:
		f.warn(setting, address+" is in use", "if the server does not run, stop the other program or use another port")
	case errors.Is(err, syscall.EACCES):
		f.fail(setting, address+" is not permitted", "use a port above 1023, or give the program the capability CAP_NET_BIND_SERVICE")
	default:
		f.fail(setting, fmt.Sprint(err), "use an address of this machine")
	}
}

// readableByAll reports whether every user of the machine can read a file.
func readableByAll(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&fs.FileMode(0o004) != 0
}

func addressOf(key *ecdsa.PrivateKey) string { return evm.PubkeyToAddress(key.PublicKey).Hex() }
