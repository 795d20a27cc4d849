package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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
}

const configFile = "config.json"

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
		return agentConfig{}, fmt.Errorf("%s is not JSON: put a copy back, or move it away and run parley init", path)
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

// configCommand shows the settings in force. It makes no call and shows no secret.
type configCommand struct {
	Flags agentFlags `embed:""`
}

func (*configCommand) Run(ctx context.Context, s *session) error {
	if err := s.load(); err != nil {
		return err
	}
	problem := ""
	if err := s.open(ctx); err != nil {
		problem = err.Error()
	}
	shown := object{}
	for name, value := range map[string]string{
		"home": s.home, "server": strings.TrimSuffix(cmp.Or(s.flags.ServerURL, s.config.Server, DefaultServer), "/"),
		"network": s.config.Network, "username": s.config.Username, "address": s.config.Address,
		"secrets": cmp.Or(s.flags.Secrets, s.config.Secrets), "problem": problem,
	} {
		if value != "" {
			shown[name] = value
		}
	}
	return s.print(nil, agent.Shown(shown))
}
