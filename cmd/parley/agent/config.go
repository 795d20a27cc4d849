package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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
	content, err := os.ReadFile(filepath.Join(home, configFile))
	if errors.Is(err, fs.ErrNotExist) {
		return config, nil
	}
	if err == nil {
		err = json.Unmarshal(content, &config)
	}
	if err != nil {
		return agentConfig{}, fmt.Errorf("read the settings: %w", err)
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
