package agent

// Help has the help of flags and arguments whose text is long: console.AddHelp.
var Help = map[string]string{
	"call json": "The arguments as one JSON object: fields of the body and parameters. - reads it from standard input.",
	"exec": "With --follow: run this shell command when messages of contacts come. They are JSON on its standard input, never " +
		"arguments.",
	"forward-to":   "With --follow: send the same JSON to this URL, by POST. It must be https:// or on this machine.",
	"from":         "Show only messages and notices from this sender or conversation. The others stay in the local copy: --cached.",
	"init rpc-url": "A JSON-RPC endpoint of the blockchain, to read the wallet's balance.",
	"home":         "Folder of the wallet's ledger, contacts and settings; by default parley in the user's folder for settings.",
	"timeout":      "End the command after this time, such as 30s. The same command finishes a payment that was sent, and pays nothing more.",
	"server":       "URL of the server; by default the one that parley init agreed with.",
	"secrets": "Place of the keys: keyring, encrypted (a file with a passphrase) or file (plaintext, never chosen without being " +
		"named).",
	"html": "Write one page for a person, with a chart of spending, limits, conversations and approvals. It replaces the file, loads " +
		"nothing and has no script.",
	"key": "To make the same call twice on purpose, give each a different text here.",
}
