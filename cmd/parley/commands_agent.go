package main

// agentCommands are the commands of an agent.
type agentCommands struct {
	Init   initCommand   `cmd:"" group:"agent" help:"Make a wallet, agree to a server's terms and create an account."`
	Status statusCommand `cmd:"" group:"agent" help:"Show account, wallet, limits and server. Free."`
}
