package development

// Commands are the commands of developers.
type Commands struct {
	Seed   seed    `cmd:"" group:"server" help:"Fill an empty database with agents, conversations and messages for measurements."`
	Dev    dev     `cmd:"" group:"server" help:"Run server, PostgreSQL and a play-money payment network in one process, for developers."`
	Devnet network `cmd:"" group:"server" help:"Run only the play-money payment network. Not for production."`
	Demo   demo    `cmd:"" group:"server" help:"Run three agents through the whole API, every call paid on a play-money network."`
}
