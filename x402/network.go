package x402

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/parley-chat/parley/x402/evm"
)

// The networks whose USDC this package knows, as CAIP-2 chain ids.
const (
	NetworkBase        = "eip155:8453"
	NetworkBaseSepolia = "eip155:84532"
)

// Network is an EVM chain and the token that is used for payments on it. The token's name and version are part of every
// signature and differ between chains. For a private chain set the name and version of its token.
type Network struct {
	// ID is the CAIP-2 chain id, such as "eip155:8453".
	ID string
	// ChainID is the numeric chain id in ID.
	ChainID uint64
	// V1Name is the network's name in x402 version 1, such as "base".
	V1Name string
	// Asset is the token contract's address.
	Asset string
	// AssetName and AssetVersion are the name and the version of the token's EIP-712 domain.
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

// Requirements returns payment requirements of scheme exact: amount atomic units of the network's token, paid to payTo.
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

// Domain is an EIP-712 domain. A signature is valid only in the domain that it was made for. Create a Domain with
// [NewDomain] or [DomainOf] once per token, because this computes the hash of the separator.
type Domain struct {
	Name              string
	Version           string
	ChainID           uint64
	VerifyingContract string

	separator [32]byte
}

// NewDomain computes the domain of a token contract. verifyingContract is 0x and 40 hex digits. NewDomain returns an
// error for any other format.
func NewDomain(name, version string, chainID uint64, verifyingContract string) (Domain, error) {
	if !isAddress(verifyingContract) {
		return Domain{}, fmt.Errorf("token contract %q is not an address: 0x and 40 hex digits", verifyingContract)
	}
	separator := hashWords(domainTypeHash, evm.Keccak256Hash([]byte(name)), evm.Keccak256Hash([]byte(version)), evm.Word(chainID),
		addressWord(verifyingContract))
	return Domain{name, version, chainID, verifyingContract, separator}, nil
}

// domain computes the domain of the network's token.
func (n Network) domain() (Domain, error) {
	domain, err := NewDomain(n.AssetName, n.AssetVersion, n.ChainID, n.Asset)
	if err != nil {
		return Domain{}, fmt.Errorf("network %s: %w", n.ID, err)
	}
	return domain, nil
}

// String describes the domain for a payer who has to sign in it.
func (d Domain) String() string {
	return fmt.Sprintf("the EIP-712 domain {name: %q, version: %q, chainId: %d, verifyingContract: %s}",
		d.Name, d.Version, d.ChainID, d.VerifyingContract)
}

// isOf reports whether the payment requirements name the token of the domain.
func (d Domain) isOf(offer PaymentRequirements) bool {
	return strings.EqualFold(offer.Asset, d.VerifyingContract) && offer.Extra["name"] == d.Name && offer.Extra["version"] == d.Version
}

// ParseChainID returns the number of an EVM chain from its CAIP-2 id: 8453 from "eip155:8453".
func ParseChainID(network string) (uint64, error) {
	id, isEVM := strings.CutPrefix(network, "eip155:")
	chainID, err := strconv.ParseUint(id, 10, 64)
	if !isEVM || err != nil {
		return 0, fmt.Errorf("network %q is not an EVM chain such as \"eip155:8453\"", network)
	}
	return chainID, nil
}

// DomainOf computes the domain that payment requirements name: their asset on their network, with extra.name and
// extra.version. It returns an error if one of them is missing or malformed.
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
