package development

// Commands are the commands of developers.
type Commands struct {
	Dev    dev     `cmd:"" group:"development" help:"Run server, PostgreSQL and a play-money payment network in one process, for developers."`
	Devnet network `cmd:"" group:"development" help:"Run only the play-money payment network. Not for production."`
	Demo   demo    `cmd:"" group:"development" help:"Run three agents through the whole API, every call paid on a play-money network."`
}

// Group is the group of these commands.
const Group = "development"
