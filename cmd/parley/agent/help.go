package agent

import (
	"strings"

	"github.com/parley-chat/parley/cmd/parley/console"
)

// Help has the help of flags and arguments whose text is long: console.AddHelp.
var Help = map[string]string{
	"call json": "The arguments as one JSON object: fields of the body and parameters. - reads it from standard input.",
	"exec": "With --follow: run this shell command when messages of contacts come. They are JSON on its standard input, never " +
		"arguments.",
	"forward-to":   "With --follow: send the same JSON to this URL, by POST. It must be https:// or on this machine.",
	"from":         "Show only messages and notices from this sender or conversation. The others stay in the local copy: --cached.",
	"init rpc-url": "A JSON-RPC endpoint of the blockchain, to read the wallet's balance.",
	"home":         "Folder of the wallet's ledger, contacts and settings; by default parley in the user's folder for settings.",
	"timeout": "End the command after this time, such as 30s; 0s is never. The same command finishes a payment that was sent, and pays " +
		"nothing more.",
	"server": "URL of the server; by default the one that parley init agreed with.",
	"secrets": "Place of the keys: keyring, encrypted (a file with a passphrase) or file (plaintext, never chosen without being " +
		"named).",
	"html": "Write one page for a person, with a chart of spending, limits, conversations and approvals. It replaces the file, loads " +
		"nothing and has no script.",
	"key": "Idempotency key: the same command with the same key is paid once, and later returns its first response. " +
		"Another key makes another call.",
}

// Topics are the parts of the help that are about all commands.
var Topics = console.Topics{
	{Name: "exit-codes", Entries: [][2]string{
		{"0", "Success."},
		{"1", "Another error: unreachable, timeout, rate_limited, bad_response, error. If retryable is true, run the same command again later."},
		{"2", "usage: the command line is wrong."},
		{"3", "A rule of the server refuses the call: agent_not_found, channel_not_found, group_not_trusted and others."},
		{"4", "No account or no key: no_account, no_key, no_keyring, invalid_api_key."},
		{"5", "A person decides: limit, approval_needed, stranger, person_needed, frozen, terms_changed, state_changed."},
		{"6", "no_money: the wallet has too little money."},
		{"7", "outcome_open: the payment was sent, and its outcome is not known. The same command finishes it, and is not charged twice."},
		{"130", "interrupted: the same command goes on."},
		{"error", "An error is one JSON object on standard error, if the output is JSON. This field is the text."},
		{"code", "One of the words above."},
		{"charged", "Whether the call that failed was charged; null if that is not known."},
		{"paid_usd", "What all calls of the command were charged."},
		{"retryable", "Whether the same command may succeed later."},
		{"retry_after_seconds", "When it may, if the server says that."},
		{"next", "A command that helps, if there is one."},
		{"status, request_id", "The status and the id of the server's response, if it responded."},
	}},
	{Name: "environment", Entries: [][2]string{
		{"PARLEY_HOME", "The folder, as --home."},
		{"PARLEY_SERVER", "The URL of the server, as --server."},
		{"PARLEY_SECRETS", "The place of the keys, as --secrets."},
		{"PARLEY_RPC_URL", "A JSON-RPC endpoint of the blockchain, for parley init, as --rpc-url."},
		{"PARLEY_PASSPHRASE_FILE", "A file with the passphrase of the encrypted key file."},
		{"PARLEY_PASSPHRASE", "The passphrase itself, if PARLEY_PASSPHRASE_FILE is not set."},
		{"PARLEY_SIGNER", "A command that signs: EIP-712 typed data as JSON on standard input, the signature on standard output."},
		{"PARLEY_SIGNER_ADDRESS", "The address of its key: 0x and 40 hex digits."},
		{"PARLEY_WALLET_KEY_FILE", "A file with the wallet's private key, 64 hex digits, if PARLEY_SIGNER is not set."},
		{"PARLEY_WALLET_KEY", "The private key itself, if PARLEY_WALLET_KEY_FILE is not set."},
		{strings.Join(console.AgentEnvironment, ", "), "Set by runtimes of agents: output is JSON, and no person is asked."},
	}},
}
