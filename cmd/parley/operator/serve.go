package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// Serve runs the server in production.
type Serve struct {
	serverSettings
}

// serverSettings are the settings of a server. Those that concern money have no defaults, except the network.
type serverSettings struct {
	File settings.File `embed:""`

	DatabaseURL  settings.Secret `env:"PARLEY_DATABASE_URL" placeholder:"URL" group:"required"`
	BaseURL      string          `env:"PARLEY_BASE_URL" example:"https://parley.example" placeholder:"URL" group:"required"`
	Payee        string          `env:"PARLEY_PAYEE" example:"0x…" placeholder:"0x…" group:"required"`
	RPCURL       settings.Secret `name:"rpc-url" env:"PARLEY_RPC_URL" placeholder:"URL" group:"required"`
	ServerSecret settings.Secret `env:"PARLEY_SERVER_SECRET" placeholder:"SECRET" group:"required"`
	Facilitator  Facilitator     `embed:"" prefix:"facilitator-" envprefix:"PARLEY_FACILITATOR_" group:"required"`

	Listen         string        `env:"PARLEY_LISTEN" default:"127.0.0.1:8402" group:"http"`
	AdminListen    string        `env:"PARLEY_ADMIN_LISTEN" example:"127.0.0.1:8404" placeholder:"HOST:PORT" group:"http"`
	TrustedProxies []string      `env:"PARLEY_TRUSTED_PROXIES" example:"[127.0.0.1/32, '::1/128']" placeholder:"CIDR,…" group:"http"`
	DrainTime      time.Duration `env:"PARLEY_DRAIN_TIME" default:"5s" group:"http"`
	LogLevel       string        `env:"PARLEY_LOG_LEVEL" default:"info" enum:"debug,info,warn,error" placeholder:"LEVEL" group:"http"`
	TLS            Encryption    `embed:"" prefix:"tls-" envprefix:"PARLEY_TLS_" group:"tls"`

	Network   string    `env:"PARLEY_NETWORK" default:"eip155:8453" placeholder:"CHAIN" group:"money"`
	Channels  Channels  `embed:"" group:"money"`
	Limits    Limits    `embed:"" prefix:"limit-" envprefix:"PARLEY_" group:"limits"`
	Retention lifetimes `embed:"" group:"limits"`
}

// Groups are the groups of the settings of a server in the help, by their keys.
var Groups = []kong.Group{{Key: "required", Title: "What a server needs:"}, {Key: "http", Title: "Listeners and log:"},
	{Key: "tls", Title: "TLS without a proxy: certificate files, or certificates by ACME:"},
	{Key: "money", Title: "Blockchain, token and payment channels:"}, {Key: "limits", Title: "Limits and retention:"},
}

// AgentSkill is the response of GET /skill.
var AgentSkill = server.Skill{Summary: "Send and read messages between AI agents over a paid HTTP API (x402, USDC).",
	HubURL: "https://github.com/parley-chat/parley/tree/main/skills/parley", InstallNPX: "npx skills add parley-chat/parley",
	InstallCLI: "clawhub install parley"}

// ReportsSettings lets Run report all wrong settings.
func (s *serverSettings) ReportsSettings() {}

// config converts the settings. The error lists all missing and invalid ones.
func (s *serverSettings) config() (server.Config, error) {
	var wrong settings.Wrong
	wrong.DatabaseURL(s.DatabaseURL)
	wrong.Address("payee", s.Payee, "the address that receives the payments")
	_, err := s.Facilitator.Config(nil)
	wrong.Add(err)
	wrong.RPCURL(s.RPCURL)
	wrong.Listen("listen", s.Listen)
	if s.AdminListen != "" {
		wrong.Listen("admin-listen", s.AdminListen)
	}
	wrong.Check(s.DrainTime >= 0, "drain-time", s.DrainTime, "0s or longer")
	network, err := s.network()
	wrong.Add(err)
	base := strings.TrimSuffix(s.BaseURL, "/")
	if base == "" && settings.OnLoopback(s.Listen) {
		base = s.TLS.scheme() + s.Listen
	}
	_, _, malformed := net.SplitHostPort(s.Listen)
	wrong.Check(settings.IsHTTP(base) && !strings.ContainsAny(base, "?#@") || base == "" && malformed != nil, "base-url",
		settings.WithoutUser(s.BaseURL), "the public URL of the server, such as https://parley.example")
	wrong.Check(!s.TLS.enabled() || !strings.HasPrefix(base, "http://"), "base-url", settings.WithoutUser(s.BaseURL),
		"https://, because the server encrypts")
	limits, err := s.Limits.Config(s.TrustedProxies)
	wrong.Add(err)
	channels, err := s.Channels.Config(s.Payee)
	wrong.Add(err)
	secrets, err := ServerSecrets(s.ServerSecret)
	wrong.Add(err)
	wrong.Add(s.TLS.check())
	_, err = traceRatio()
	wrong.Add(err)
	retention, err := s.Retention.config()
	wrong.Add(err)
	return server.Config{BaseURL: base, Network: network, PayTo: s.Payee, FacilitatorURL: strings.TrimSuffix(s.Facilitator.URL, "/"),
		Skill: AgentSkill, Channels: channels, Secrets: secrets, Limits: limits, Retention: retention}, wrong.Err()
}

// network returns the blockchain and its token.
func (s *serverSettings) network() (x402.Network, error) {
	chain, token, named := strings.Cut(s.Network, "/")
	if network, known := x402.LookupNetwork(chain); known && !named {
		return network, nil
	}
	id, err := x402.ParseChainID(chain)
	if err != nil {
		return x402.Network{}, settings.Invalid("network", s.Network, "the chain's CAIP-2 id, such as eip155:8453")
	}
	var wrong settings.Wrong
	asset, domain, _ := strings.Cut(token, "/")
	name, version, _ := strings.Cut(domain, "/")
	wrong.Check(settings.AddressForm.MatchString(asset) && name != "" && version != "", "network", s.Network,
		"it with the token's contract, EIP-712 name and version, such as "+chain+"/0x…/USDC/2")
	return x402.Network{ID: chain, ChainID: id, Asset: asset, AssetName: name, AssetVersion: version}, wrong.Err()
}

// memoryLimit is the heap and the stacks above which the garbage is collected more often. All connections without a payment need less.
const memoryLimit = 300 << 20

// Run serves until ctx ends.
func (s *Serve) Run(ctx context.Context, to console.Console, given *settings.Settings) error {
	if os.Getenv("GOGC") == "" { // most objects are short-lived: collecting less often costs some tens of megabytes
		debug.SetGCPercent(300)
	}
	if os.Getenv("GOMEMLIMIT") == "" { // collect more often rather than take more, when many callers hold what they may
		debug.SetMemoryLimit(memoryLimit)
	}
	config, err := s.config()
	if err = given.Report(err); err != nil {
		return err
	}
	log := NewLog(to.Err, s.logLevel())
	log.LogAttrs(ctx, slog.LevelInfo, "starting", slog.String("version", console.ProgramVersion()))
	client, err := s.Facilitator.Config(log)
	if err != nil {
		return err
	}
	chain := &x402.Chain{URL: s.RPCURL.Value}
	var tracers []pgx.QueryTracer
	traces, err := startTracing(ctx, log)
	if err != nil {
		return err // config returns it too
	}
	if traces != nil {
		defer traces.stop(ctx)
		config.Trace = traces.handler
		client.HTTPClient.Transport = traces.transport("facilitator", client.HTTPClient.Transport)
		chain.HTTPClient = &http.Client{Transport: traces.transport("blockchain", http.DefaultTransport)}
		tracers = append(tracers, traces.database())
	}
	database, err := store.Open(ctx, s.DatabaseURL.Value, store.Serving, tracers...)
	if err != nil {
		return err
	}
	defer database.Close()
	// While the database is unavailable the server starts all the same: it tells prices, and says in /readyz what it waits for.
	if err := database.CheckSchema(ctx); store.Unavailable(err) {
		log.WarnContext(ctx, "the database is unavailable; calls return 503 until it is available", "error", err)
		config.Await = func(ctx context.Context) error { return awaitSchema(ctx, database) }
	} else if err != nil {
		return err
	}
	if err := s.checkChain(ctx, config.Network); err != nil {
		return err
	}
	listener, admin, err := s.listen(ctx)
	if err != nil {
		return err
	}
	if admin != nil {
		config.DrainTime = s.DrainTime
	}
	var stopRedirects func()
	if config.TLS, stopRedirects, err = s.TLS.Start(ctx, config, log); err != nil {
		return errors.Join(err, listener.Close())
	}
	defer stopRedirects()
	ready := func() { fmt.Fprintln(to.Out, "ready", config.BaseURL) }
	return ServeOn(ctx, listener, admin, config, client, chain, database, log, supervised(ctx, log, ready))
}

// checkChain returns an error if the endpoint serves another blockchain. An endpoint that does not respond is no reason not to start.
func (s *Serve) checkChain(ctx context.Context, network x402.Network) error {
	limited, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	_, err := (&x402.Chain{URL: s.RPCURL.Value}).Serving(limited, network.ID)
	if _, other := errors.AsType[*x402.OtherChain](err); other {
		return fmt.Errorf("%w; correct --rpc-url (PARLEY_RPC_URL) or --network (PARLEY_NETWORK)", err)
	}
	return nil
}

// listen opens the listeners. The operator's listener may be nil.
func (s *Serve) listen(ctx context.Context) (listener, admin net.Listener, err error) {
	if listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", s.Listen); err != nil || s.AdminListen == "" {
		return listener, nil, err
	}
	if admin, err = (&net.ListenConfig{}).Listen(ctx, "tcp", s.AdminListen); err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	return listener, admin, nil
}

// awaitSchema waits until the database is available, and then returns what CheckSchema returns.
func awaitSchema(ctx context.Context, database *store.Store) error {
	for {
		if err := database.CheckSchema(ctx); !store.Unavailable(err) {
			return err
		}
		if err := console.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// ServeOn runs the server on a listener until ctx ends and then completes running requests. admin may be nil.
func ServeOn(ctx context.Context, listener, admin net.Listener, config server.Config, facilitator *x402.Facilitator, chain *x402.Chain,
	database *store.Store, log *slog.Logger, ready func()) error {
	parley, err := server.New(config, database, facilitator, chain, log)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	if admin != nil {
		defer ServeHTTP(ctx, admin, parley.Admin())()
	}
	logStart(ctx, log, listener, admin, config)
	ready()
	return parley.Serve(ctx, listener)
}

// ServeHTTP serves callers of the operator in the background. The returned function stops it. A profile of a minute fits
// into the times: net/http cancels a request when the time to read it is over. Clients keep idle connections for 90 seconds by default.
func ServeHTTP(ctx context.Context, listener net.Listener, handler http.Handler) (stop func()) {
	return serveBy(ctx, listener, &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 90 * time.Second, WriteTimeout: 90 * time.Second,
		IdleTimeout: 2 * time.Minute,
	})
}

// serveBy serves in the background. The returned function stops it.
func serveBy(ctx context.Context, listener net.Listener, server *http.Server) (stop func()) {
	go func() { _ = server.Serve(listener) }()
	return func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = server.Shutdown(stopping)
	}
}
