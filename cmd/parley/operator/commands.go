package operator

// Commands are the commands of the operator of a server.
type Commands struct {
	Serve         Serve         `cmd:"" group:"server" help:"Run the server in production."`
	Check         check         `cmd:"" group:"server" help:"Try everything that a server needs: settings, database, facilitator, blockchain, payee, base URL, clocks."`
	Migrate       migrate       `cmd:"" group:"server" help:"Migrate the database's schema to this version."`
	Healthcheck   healthcheck   `cmd:"" group:"server" help:"Ask the server on this machine whether it is ready; for containers."`
	Payments      payments      `cmd:"" group:"server" help:"List, export, resolve, refund and reconcile payments."`
	Agents        agents        `cmd:"" group:"server" help:"Show, suspend, resume, rename, export and erase accounts."`
	Conversations conversations `cmd:"" group:"server" help:"Show, remove and restore conversations."`
	Messages      messages      `cmd:"" group:"server" help:"Remove messages."`
	Audit         audit         `cmd:"" group:"server" help:"List what operators did."`
	Retention     oldData       `cmd:"" group:"server" help:"Remove messages and deleted conversations that are too old."`
	Storage       storage       `cmd:"" group:"server" help:"Show the size of the tables, and the accounts that have stored most."`
}
