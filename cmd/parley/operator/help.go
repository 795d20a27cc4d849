package operator

// Help has the help of settings and of flags whose text is long: console.AddHelp. deploy/parley.yaml has it too.
var Help = map[string]string{
	"database-url": "PostgreSQL 15 or later, as a postgres:// URL.",
	"base-url": "Public URL of the server, part of the contract and of payment requirements. Not required if the server listens on " +
		"loopback.",
	"payee": "The address that receives the payments.",
	"rpc-url": "A JSON-RPC endpoint of the chain. It shows balances of wallets and outcomes of payments. The play-money network has one " +
		"at /rpc.",
	"server-secret": "The secret (64 hex digits: openssl rand -hex 32) from which API keys and TANs are derived. All servers of a " +
		"database have the same. Former ones follow, one per line, for ten minutes.",
	"listen": "Address on which to listen (${default}).",
	"admin-listen": "Address for the operator's page, /metrics, /livez, /readyz and /debug/pprof/. Never make it public. By default it " +
		"is not served.",
	"trusted-proxies": "Networks of the proxies in front of the server. X-Forwarded-For is read only from them; without this setting all " +
		"callers behind a proxy share one limit.",
	"drain-time": "How long /readyz returns 503 before the server stops accepting calls, so that a load balancer notices (${default}). " +
		"Without --admin-listen there is no wait.",
	"log-level": "Least level of the lines in the log: debug, info, warn or error (${default}). At warn there are no lines for calls " +
		"that succeed or are refused.",
	"network": "The chain, as CAIP-2 (${default}: Base). Payments are in its USDC. Another token follows with its EIP-712 name and " +
		"version: CHAIN/0x…/NAME/VERSION.",
	"facilitator-url": "The x402 facilitator that verifies and settles payments.",
	"facilitator-key": "Bearer token for a facilitator that asks for one, or ID:SECRET of a secret API key of the Coinbase Developer " +
		"Platform, as the platform shows them (base64 or PEM).",
	"tls-certificate-file": "Certificate with its intermediates, in PEM. It is read again when it changes.",
	"tls-key-file":         "The certificate's key, in PEM. The user parley must be able to read both files, also new ones.",
	"tls-domain": "Get certificates for these domains from Let's Encrypt, to whose terms you agree, and renew them. They are stored in " +
		"/var/lib/parley/certificates, or in STATE_DIRECTORY. Only one server has a domain; several stand behind a proxy.",
	"tls-http-listen": "Address on which http:// is redirected to --base-url, and where challenges over HTTP are answered; by default none.",
	"authorizer-key": "The private key (64 hex digits) that signs claims and refunds of payment channels. Without it payment channels " +
		"are not offered, except by parley dev, which creates a key in its data folder. Use a new key: it holds no money, must not be the " +
		"payee's, and must not be used with another database. Former keys follow, one per line; they claim and refund older payment " +
		"channels.",
	"channel-withdraw-delay": "How long a payer's withdrawal from its payment channel takes, from 15m to 720h (${default}). What is not " +
		"claimed by then is lost.",
	"channel-min-deposit": "The deposit that is suggested to payers (${default} USD); before registration with the price of an account. " +
		"The least is a tenth of it: each deposit costs the operator a transaction.",
	"channel-claim-sum": "Claim the vouchers of a payment channel on the blockchain when they reach this sum (${default} USD), or when the " +
		"oldest one is a day old, or as old as the withdraw delay. A withdrawal is noticed and claimed earlier. Vouchers of a payment " +
		"channel with ten times as much unclaimed are refused.",
	"channel-max-unclaimed": "Refuse all vouchers while more than this is charged and not claimed in all payment channels (${default} " +
		"USD). From half of it on everything is claimed at once.",
	"channel-idle-refund": "Refund the rest of payment channels that were not used for this time, such as 720h. By default only payers " +
		"ask for refunds. Each costs a transaction; balances below 0.01 USD are kept.",
	"limit-address-rate": "Unpaid calls per second from one client address (an IPv4 address or an IPv6 /64). The burst is ten times as " +
		"many. Paid calls are not counted (${default}). One account or wallet has a fifth of this for calls that end without a charge.",
	"limit-connections": "Open connections, at most 1024 of them per client address (${default}). At the limit a new connection replaces " +
		"an idle one.",
	"retention-messages": "Remove messages that are older than this, and group chats and channels that were deleted longer ago, such as " +
		"8760h for a year, at least 24h. By default everything stays forever.",
	"config":                  "YAML file with settings. Its keys are the names of the flags. Flags and the environment override it.",
	"format":                  "table, csv with a header and all columns, or json, one object per line (${default}).",
	"reason":                  "Why, for the audit. Do not name usernames or content: the audit stays when an account is erased.",
	"payments channels state": "open, depositing or refunding; separate several with commas.",
	"state": "settling, unknown, delivered, failed, undeliverable, deposited, or open for those without a final outcome (settling, " +
		"unknown, undeliverable); separate several with commas.",
	"since":            "Compare only payments created at this time or later. A long period needs many calls to the endpoint.",
	"transaction":      "The transaction in which the payee gave the money, or a part of it, back to the payer.",
	"settled":          "The payment settled in this transaction. The server then executes the operation, if it has not done so yet.",
	"transaction-cost": "What a transaction of the facilitator costs you: gas and fee (${default} USD).",
	"gas":              "Also sum up the gas of claims, payouts and refunds. Asks --rpc-url for each transaction, which takes long for many.",
}
