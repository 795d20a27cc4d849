package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/parley-chat/parley/agent"
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
	RPCURL  string `json:"rpc_url,omitempty"`
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

// Run is called by kong.
func (*configCommand) Run(ctx context.Context, s *session, command *kong.Context) error {
	if err := s.load(); err != nil {
		return err
	}
	file := filepath.Join(s.home, configFile)
	value := &agent.Value{Data: object{}}
	for _, one := range []struct{ name, value, from string }{
		{"home", s.home, given(command, "home", "", "")},
		{"server", strings.TrimSuffix(cmp.Or(s.flags.ServerURL, s.config.Server, DefaultServer), "/"),
			given(command, "server", s.config.Server, file)},
		{"network", s.config.Network, file}, {"username", s.config.Username, file}, {"address", s.config.Address, file},
		{"secrets", cmp.Or(s.flags.Secrets, s.config.Secrets), given(command, "secrets", s.config.Secrets, file)},
		{"rpc_url", withoutPath(s.config.RPCURL), file},
	} {
		if one.value != "" {
			value.Data[one.name] = object{"value": one.value, "from": one.from}
			value.Parts = append(value.Parts, agent.Part{Line: fmt.Sprintf("%s: %s (%s)", one.name, agent.Visible(one.value), one.from)})
		}
	}
	if err := s.open(ctx); err != nil {
		value.Data["problem"] = s.runnable(err.Error())
		value.Parts = append(value.Parts, agent.Part{Line: "the wallet cannot be opened: " + s.runnable(err.Error())})
	}
	return s.print(nil, value)
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

// withoutPath returns scheme and host of a URL: providers of blockchains put keys into the rest.
func withoutPath(text string) string {
	parsed, err := url.Parse(text)
	if err != nil || parsed.Host == "" {
		return ""
	}
	return parsed.Scheme + "://" + parsed.Host
}
