package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/internal/lockfile"
)

// agentConfig is config.json in the folder of an agent. It has no secrets.
type agentConfig struct {
	Server  string `json:"server,omitempty"`
	Network string `json:"network,omitempty"`
	// Address is the wallet's address.
	Address  string `json:"address,omitempty"`
	Username string `json:"username,omitempty"`
	// Secrets is the place of the wallet's key and of the API key.
	Secrets string `json:"secrets,omitempty"`
	// Signer is a command that signs in place of a key.
	Signer string `json:"signer,omitempty"`
	RPCURL string `json:"rpc_url,omitempty"`
	// PlayMoney is true for the network of parley dev.
	PlayMoney bool `json:"play_money,omitempty"`
}

const configFile = "config.json"

// agentHome returns the folder of an agent.
func agentHome(chosen string) (string, error) {
	if chosen != "" {
		return filepath.Abs(chosen)
	}
	folder, err := os.UserConfigDir()
	if err != nil {
		return "", errors.New("there is no folder for settings; name one with PARLEY_HOME")
	}
	return filepath.Join(folder, "parley"), nil
}

func loadConfig(home string) (config agentConfig, err error) {
	path := filepath.Join(home, configFile)
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return config, nil
	}
	if err != nil {
		return config, fmt.Errorf("read the settings: %w", err)
	}
	if err := json.Unmarshal(content, &config); err != nil {
		return agentConfig{}, fmt.Errorf("%s is damaged (%w): put a copy back, or move it away and run parley init, which keeps wallet and "+
			"account", path, err)
	}
	return config, nil
}

// saveConfig replaces config.json, readable by its owner only. Only `parley init` calls it, one process at a time.
func saveConfig(home string, config agentConfig) error {
	content, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	return lockfile.Replace(filepath.Join(home, configFile), append(content, '\n'))
}

// configCommand shows the settings in force and where each comes from. It makes no call and shows no secret.
type configCommand struct {
	Flags agentFlags `embed:""`
}

// setting is a value and where it comes from.
type setting struct {
	name  string
	Value any    `json:"value"`
	From  string `json:"from"`
}

func (c *configCommand) Run(ctx context.Context, s *session, command *kong.Context) error {
	if err := s.load(); err != nil {
		return err
	}
	file := filepath.Join(s.home, configFile)
	shown := []setting{
		{"home", s.home, given(command, "home", "", "")},
		{"server", strings.TrimSuffix(cmp.Or(s.flags.ServerURL, s.config.Server, DefaultServer), "/"),
			given(command, "server", s.config.Server, file)},
	}
	username := s.config.Username
	if username != "" {
		username = agent.PlainWord(username) // the server sent it
	}
	for _, one := range []setting{
		{"network", s.config.Network, file}, {"username", username, file}, {"address", s.config.Address, file},
		{"secrets", cmp.Or(s.flags.Secrets, s.config.Secrets), given(command, "secrets", s.config.Secrets, file)},
		{"rpc_url", withoutPath(s.config.RPCURL), file},
	} {
		if text, _ := one.Value.(string); text != "" {
			one.Value = agent.Visible(text)
			shown = append(shown, one)
		}
	}
	problem := s.open(ctx) // this may fail: the settings show why
	if problem == nil {
		limits, _, _, err := s.agent.Ledger().Limits(ctx)
		if err != nil {
			return err
		}
		shown = append(shown, s.signerSetting(file), limitSetting("per_call_usd", limits.PerCall, agent.DefaultLimits.PerCall),
			limitSetting("per_day_usd", limits.PerDay, agent.DefaultLimits.PerDay),
			limitSetting("polls_usd", limits.Polls, agent.DefaultLimits.Polls))
	}
	value := object{}
	for _, one := range shown {
		value[one.name] = one
	}
	if problem != nil {
		value["problem"] = s.runnable(problem.Error())
	}
	return s.print(ctx, value, func(w io.Writer) {
		table := console.Table(w)
		for _, one := range shown {
			fmt.Fprintf(table, "%s\t%v\t%s\n", one.name, one.Value, one.From)
		}
		_ = table.Flush() // into memory
		if problem != nil {
			fmt.Fprintf(w, "the wallet cannot be opened: %s\n", value["problem"])
		}
	})
}

// given returns where the value of a common flag comes from. stored is the value of the file, which counts if the flag is not given.
func given(command *kong.Context, name, stored, file string) string {
	for _, flag := range CommonFlags(command.Model) {
		if flag.Name != name {
			continue
		}
		if slices.ContainsFunc(command.Path, func(path *kong.Path) bool { return path.Flag != nil && path.Flag.Name == name }) {
			return "--" + name
		}
		if os.Getenv(flag.Envs[0]) != "" {
			return flag.Envs[0]
		}
	}
	if stored != "" {
		return file
	}
	return "default"
}

// signerSetting says what signs, once the wallet is open. The command of a signer is not shown: it can contain a secret.
func (s *session) signerSetting(file string) setting {
	from := s.keyPlace // the variable with the key
	switch {
	case os.Getenv("PARLEY_SIGNER") != "":
		from = "PARLEY_SIGNER"
	case s.config.Signer != "", s.keyPlace == s.secrets.Place():
		from = file
	}
	return setting{"wallet_key", s.keyPlace, from}
}

func limitSetting(name string, limit, byDefault uint64) setting {
	from := "parley wallet limits"
	if limit == byDefault {
		from = "default"
	}
	return setting{name, agent.USD(limit), from}
}

// withoutPath returns scheme and host of a URL: providers of blockchains put keys into the rest.
func withoutPath(text string) string {
	parsed, err := url.Parse(text)
	if err != nil || parsed.Host == "" {
		return ""
	}
	return parsed.Scheme + "://" + parsed.Host
}
