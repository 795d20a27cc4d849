package x402

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/parley-chat/parley/x402/evm"
)

// The networks whose USDC is known here, as CAIP-2 chain ids.
const (
	NetworkBase        = "eip155:8453"
	NetworkBaseSepolia = "eip155:84532"
)

// Network is an EVM chain with the token that is paid with there. The token's name and version enter every signature
// and differ from chain to chain; for a private chain fill in its own.
type Network struct {
	// ID is the CAIP-2 chain id, "eip155:8453".
	ID string
	// ChainID is the number in ID.
	ChainID uint64
	// V1Name is what x402 version 1 calls the network, "base".
	V1Name string
	// Asset is the token contract's address.
	Asset string
	// AssetName and AssetVersion are the token's EIP-712 domain.
	AssetName    string
	AssetVersion string
}

var networks = []Network{
	{NetworkBase, 8453, "base", "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "USD Coin", "2"},
	{NetworkBaseSepolia, 84532, "base-sepolia", "0x036CbD53842c5426634e7929541eC2318f3dCF7e", "USDC", "2"},
}

// LookupNetwork returns a known network by its CAIP-2 chain id.
func LookupNetwork(id string) (Network, bool) {
	for _, network := range networks {
		if network.ID == id {
			return network, true
		}
	}
	return Network{}, false
}

// Requirements returns the offer to take amount atomic units of the network's token for payTo.
func (n Network) Requirements(amount uint64, payTo string, maxTimeoutSeconds int) PaymentRequirements {
	return PaymentRequirements{
		Scheme:            SchemeExact,
		Network:           n.ID,
		Amount:            strconv.FormatUint(amount, 10),
		Asset:             n.Asset,
		PayTo:             payTo,
		MaxTimeoutSeconds: maxTimeoutSeconds,
		Extra:             map[string]any{"name": n.AssetName, "version": n.AssetVersion},
	}
}

// Domain is an EIP-712 domain: signatures of one are worthless in every other. Make it with [NewDomain] or [DomainOf],
// once per token, because that hashes the separator.
type Domain struct {
	Name              string
	Version           string
	ChainID           uint64
	VerifyingContract string

	separator [32]byte
}

// NewDomain computes the domain of a token contract. verifyingContract is 0x and 40 hex digits; anything else is an
// error.
func NewDomain(name, version string, chainID uint64, verifyingContract string) (Domain, error) {
	if !isAddress(verifyingContract) {
		return Domain{}, fmt.Errorf("token contract %q is not an address: 0x and 40 hex digits", verifyingContract)
	}
	var encoded [5 * 32]byte
	copy(encoded[0:], domainTypeHash[:])
	copy(encoded[32:], evm.Keccak256([]byte(name)))
	copy(encoded[64:], evm.Keccak256([]byte(version)))
	binary.BigEndian.PutUint64(encoded[120:], chainID)
	putHex(encoded[140:], verifyingContract)
	return Domain{name, version, chainID, verifyingContract, evm.Keccak256Hash(encoded[:])}, nil
}

// ParseChainID reads the number of an EVM chain from its CAIP-2 id: 8453 from "eip155:8453".
func ParseChainID(network string) (uint64, error) {
	id, isEVM := strings.CutPrefix(network, "eip155:")
	chainID, err := strconv.ParseUint(id, 10, 64)
	if !isEVM || err != nil {
		return 0, fmt.Errorf("network %q is not an EVM chain such as \"eip155:8453\"", network)
	}
	return chainID, nil
}

// DomainOf computes the domain that an offer names: its asset on its network, with extra.name and extra.version. It
// fails if one of them is missing or malformed.
func DomainOf(requirements PaymentRequirements) (Domain, error) {
	chainID, err := ParseChainID(requirements.Network)
	if err != nil {
		return Domain{}, err
	}
	name, _ := requirements.Extra["name"].(string)
	version, _ := requirements.Extra["version"].(string)
	if name == "" || version == "" {
		return Domain{}, fmt.Errorf("the offer lacks extra.name or extra.version, the token's EIP-712 domain")
	}
	return NewDomain(name, version, chainID, requirements.Asset)
}

// Separator returns the domain separator of EIP-712.
func (d Domain) Separator() [32]byte { return d.separator }
