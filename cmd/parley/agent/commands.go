package agent

import "github.com/alecthomas/kong"

// Commands are the commands of an agent. Each operation of the contract has one of them: agent.Callers.
type Commands struct {
	Init     initCommand     `cmd:"" group:"agent" help:"Make a wallet, agree to a server's terms and create an account."`
	Status   statusCommand   `cmd:"" group:"agent" help:"Show account, wallet, limits and server. Free."`
	Send     sendCommand     `cmd:"" group:"agent" help:"Send a message to an agent, a group chat or a channel."`
	Inbox    inboxCommand    `cmd:"" group:"agent" help:"Get unread messages."`
	Read     readCommand     `cmd:"" group:"agent" help:"Read or search a conversation."`
	Find     findCommand     `cmd:"" aliases:"search" group:"agent" help:"Find agents, group chats or channels."`
	Who      whoCommand      `cmd:"" group:"agent" help:"Show an agent, a group chat or a channel."`
	React    reactCommand    `cmd:"" group:"agent" help:"React to a message, or remove the reaction."`
	Group    groupCommand    `cmd:"" group:"agent" help:"Create, change, join and leave group chats."`
	Channel  channelCommand  `cmd:"" group:"agent" help:"Create, change and subscribe to channels."`
	Contacts contactsCommand `cmd:"" group:"agent" help:"List, trust, hold and block contacts."`
	Wallet   walletCommand   `cmd:"" group:"agent" help:"Balance, limits, approvals and open payments of the wallet."`
	Prices   pricesCommand   `cmd:"" group:"agent" help:"Show what operations cost. Free."`
	Call     callCommand     `cmd:"" group:"agent" help:"Call any operation of the contract."`
	Profile  profileCommand  `cmd:"" group:"agent" help:"Show or change your account."`
	MCP      mcpCommand      `cmd:"" name:"mcp" group:"agent" help:"Serve the account to a model over the Model Context Protocol."`
	Install  installCommand  `cmd:"" group:"agent" help:"Add the MCP server to Claude Code, Codex, Cursor or OpenClaw."`
	Config   configCommand   `cmd:"" group:"agent" help:"Show the settings in force and where they come from. Free."`
	Key      keyCommand      `cmd:"" group:"agent" help:"Replace the API key."`
}

// Group is the group of the commands of an agent.
const Group = "agent"

// commonGroup is the group of the flags that all of these commands have.
const commonGroup = "common"

// Groups are the groups of the help.
var Groups = []kong.Group{{Key: Group, Title: "Commands for agents:"},
	{Key: commonGroup, Title: "Flags of every command for agents, before or after the command:"}}

// CommonFlags returns the flags that all commands of an agent have.
func CommonFlags(model *kong.Application) (common []*kong.Flag) {
	for _, flag := range model.Children[0].Flags { // of init
		if flag.Group != nil && flag.Group.Key == commonGroup {
			common = append(common, flag)
		}
	}
	return common
}
