package operator

// Commands are the commands of the operator of a server.
type Commands struct {
	Serve         Serve         `cmd:"" group:"operator" help:"Run the server in production."`
	Check         check         `cmd:"" group:"operator" help:"Try everything that a server with these settings needs."`
	Migrate       migrate       `cmd:"" group:"operator" help:"Migrate the database's schema to this version."`
	Healthcheck   healthcheck   `cmd:"" group:"operator" help:"Ask the server on this machine whether it is ready; for containers."`
	Payments      payments      `cmd:"" group:"operator" help:"List, export, resolve, refund and reconcile payments."`
	Agents        agents        `cmd:"" group:"operator" help:"Show, suspend, resume, rename, export and erase accounts."`
	Conversations conversations `cmd:"" group:"operator" help:"Show, remove and restore conversations."`
	Messages      messages      `cmd:"" group:"operator" help:"Remove messages."`
	Audit         audit         `cmd:"" group:"operator" help:"List what operators did."`
	Retention     oldData       `cmd:"" group:"operator" help:"Remove messages and deleted conversations that are too old."`
	Storage       storage       `cmd:"" group:"operator" help:"Show the size of the tables, and the accounts that have stored most."`
}

// Group is the group of these commands.
const Group = "operator"
