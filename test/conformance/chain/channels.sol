// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {digestOf, Domain, isSignedBy, recovered, Token} from "./contracts.sol";

struct ChannelConfig {
    address payer;
    address payerAuthorizer;
    address receiver;
    address receiverAuthorizer;
    address token;
    uint40 withdrawDelay;
    bytes32 salt;
}

struct Voucher {
    ChannelConfig channel;
    uint128 maxClaimableAmount;
}

struct VoucherClaim {
    Voucher voucher;
    bytes signature;
    uint128 totalClaimed;
}

/// Payment channels with the interface of x402BatchSettlement, written for these checks. Like the token it has no constructor and no
/// immutables, so that its code can be put at the canonical address.
contract Channels is Domain {
    struct Channel {
        uint128 balance; // deposits without refunds and withdrawals; claims do not lower it
        uint128 totalClaimed;
    }

    struct Withdrawal {
        uint128 amount;
        uint40 initiatedAt;
    }

    struct Receiver {
        uint128 totalClaimed;
        uint128 totalSettled;
    }

    bytes32 public constant CHANNEL_CONFIG_TYPEHASH = keccak256(
        "ChannelConfig(address payer,address payerAuthorizer,address receiver,address receiverAuthorizer,"
        "address token,uint40 withdrawDelay,bytes32 salt)"
    );
    bytes32 private constant VOUCHER_TYPEHASH = keccak256("Voucher(bytes32 channelId,uint128 maxClaimableAmount)");
    bytes32 private constant REFUND_TYPEHASH = keccak256("Refund(bytes32 channelId,uint256 nonce,uint128 amount)");
    bytes32 private constant CLAIM_ENTRY_TYPEHASH =
        keccak256("ClaimEntry(bytes32 channelId,uint128 maxClaimableAmount,uint128 totalClaimed)");
    bytes32 private constant CLAIM_BATCH_TYPEHASH = keccak256(
        "ClaimBatch(ClaimEntry[] claims)ClaimEntry(bytes32 channelId,uint128 maxClaimableAmount,uint128 totalClaimed)"
    );

    mapping(bytes32 => Channel) public channels;
    mapping(bytes32 => Withdrawal) public pendingWithdrawals;
    mapping(bytes32 => uint256) public refundNonce;
    mapping(address => mapping(address => Receiver)) public receivers;

    event ChannelCreated(bytes32 indexed channelId, ChannelConfig config);
    event Deposited(bytes32 indexed channelId, address indexed sender, uint128 amount, uint128 newBalance);
    event Claimed(bytes32 indexed channelId, address indexed sender, uint128 claimAmount, uint128 newTotalClaimed);
    event Settled(address indexed receiver, address indexed token, address indexed sender, uint128 amount);
    event Refunded(bytes32 indexed channelId, address indexed sender, uint128 amount);
    event WithdrawInitiated(bytes32 indexed channelId, uint128 amount, uint40 finalizeAfter);
    event WithdrawFinalized(bytes32 indexed channelId, address indexed sender, uint128 amount);

    bool private transient entered;

    modifier once() {
        require(!entered, "reentered");
        entered = true;
        _;
        entered = false;
    }

    function deposit(ChannelConfig calldata config, uint128 amount, address collector, bytes calldata collectorData) external once {
        require(config.payer != address(0) && config.receiver != address(0), "invalid channel");
        require(config.receiverAuthorizer != address(0) && config.token != address(0), "invalid channel");
        require(config.withdrawDelay >= 15 minutes && config.withdrawDelay <= 30 days, "invalid withdraw delay");
        require(amount > 0, "invalid amount");
        bytes32 id = getChannelId(config);
        Channel storage channel = channels[id];
        uint256 before = Token(config.token).balanceOf(address(this));
        Collector(collector).collect(config.payer, config.token, amount, id, collectorData);
        require(Token(config.token).balanceOf(address(this)) == before + amount, "invalid amount");
        if (channel.balance == 0) emit ChannelCreated(id, config);
        channel.balance += amount;
        emit Deposited(id, msg.sender, amount, channel.balance);
    }

    function claimWithSignature(VoucherClaim[] calldata claims, bytes calldata authorizerSignature) external once {
        require(claims.length > 0, "no claims");
        address authorizer = claims[0].voucher.channel.receiverAuthorizer;
        require(isSignedBy(authorizer, getClaimBatchDigest(claims), authorizerSignature), "invalid signature");
        bytes32 ours = domain();
        for (uint256 i = 0; i < claims.length; i++) {
            require(claims[i].voucher.channel.receiverAuthorizer == authorizer, "not authorized");
            process(claims[i], ours);
        }
    }

    /// A row that was claimed before changes nothing. Any other row that cannot be claimed reverts the whole batch.
    function process(VoucherClaim calldata row, bytes32 ours) private {
        ChannelConfig calldata config = row.voucher.channel;
        bytes32 id = digestOf(ours, structHash(config));
        Channel storage channel = channels[id];
        (uint128 balance, uint128 claimed) = (channel.balance, channel.totalClaimed);
        if (row.totalClaimed <= claimed) return;
        require(row.totalClaimed <= row.voucher.maxClaimableAmount, "claim exceeds ceiling");
        require(row.totalClaimed <= balance, "claim exceeds balance");
        bytes32 voucher = digestOf(ours, keccak256(abi.encode(VOUCHER_TYPEHASH, id, row.voucher.maxClaimableAmount)));
        bool signed = config.payerAuthorizer == address(0)
            ? isSignedBy(config.payer, voucher, row.signature)
            : recovered(voucher, row.signature) == config.payerAuthorizer;
        require(signed, "invalid signature");
        channel.totalClaimed = row.totalClaimed;
        receivers[config.receiver][config.token].totalClaimed += row.totalClaimed - claimed;
        emit Claimed(id, msg.sender, row.totalClaimed - claimed, row.totalClaimed);
    }

    function settle(address receiver, address token) external once {
        Receiver storage due = receivers[receiver][token];
        uint128 amount = due.totalClaimed - due.totalSettled;
        if (amount == 0) return;
        due.totalSettled = due.totalClaimed;
        Token(token).transfer(receiver, amount);
        emit Settled(receiver, token, msg.sender, amount);
    }

    /// The nonce is used even if nothing is left to refund.
    function refundWithSignature(ChannelConfig calldata config, uint128 amount, uint256 nonce, bytes calldata signature) external once {
        bytes32 id = getChannelId(config);
        require(nonce == refundNonce[id], "invalid nonce");
        require(isSignedBy(config.receiverAuthorizer, getRefundDigest(id, nonce, amount), signature), "invalid signature");
        refundNonce[id] = nonce + 1;
        uint128 moved = pay(id, config, amount);
        Withdrawal storage pending = pendingWithdrawals[id];
        if (pending.initiatedAt != 0 && spendable(id) < pending.amount) {
            pending.amount = spendable(id);
            if (pending.amount == 0) delete pendingWithdrawals[id];
        }
        emit Refunded(id, msg.sender, moved);
    }

    function initiateWithdraw(ChannelConfig calldata config, uint128 amount) external {
        bytes32 id = getChannelId(config);
        require(msg.sender == config.payer || msg.sender == config.payerAuthorizer, "not authorized");
        require(pendingWithdrawals[id].initiatedAt == 0, "withdrawal pending");
        require(amount > 0 && amount <= spendable(id), "invalid amount");
        pendingWithdrawals[id] = Withdrawal(amount, uint40(block.timestamp));
        emit WithdrawInitiated(id, amount, uint40(block.timestamp) + config.withdrawDelay);
    }

    function finalizeWithdraw(ChannelConfig calldata config) external once {
        bytes32 id = getChannelId(config);
        Withdrawal memory pending = pendingWithdrawals[id];
        require(pending.initiatedAt > 0 && block.timestamp >= pending.initiatedAt + config.withdrawDelay, "withdrawal not due");
        delete pendingWithdrawals[id];
        emit WithdrawFinalized(id, msg.sender, pay(id, config, pending.amount));
    }

    /// Pays at most what is neither claimed nor paid back yet to the payer.
    function pay(bytes32 id, ChannelConfig calldata config, uint128 amount) private returns (uint128) {
        if (amount > spendable(id)) amount = spendable(id);
        if (amount == 0) return 0;
        channels[id].balance -= amount;
        Token(config.token).transfer(config.payer, amount);
        return amount;
    }

    function multicall(bytes[] calldata data) external returns (bytes[] memory results) {
        results = new bytes[](data.length);
        for (uint256 i = 0; i < data.length; i++) {
            (bool ok, bytes memory result) = address(this).delegatecall(data[i]);
            require(ok, "a call failed");
            results[i] = result;
        }
    }

    function spendable(bytes32 id) private view returns (uint128) {
        return channels[id].balance - channels[id].totalClaimed;
    }

    function getChannelId(ChannelConfig calldata config) public view returns (bytes32) {
        return digestOf(domain(), structHash(config));
    }

    function getVoucherDigest(bytes32 channelId, uint128 maxClaimableAmount) external view returns (bytes32) {
        return digestOf(domain(), keccak256(abi.encode(VOUCHER_TYPEHASH, channelId, maxClaimableAmount)));
    }

    function getRefundDigest(bytes32 channelId, uint256 nonce, uint128 amount) public view returns (bytes32) {
        return digestOf(domain(), keccak256(abi.encode(REFUND_TYPEHASH, channelId, nonce, amount)));
    }

    function getClaimBatchDigest(VoucherClaim[] calldata claims) public view returns (bytes32) {
        bytes32 ours = domain();
        bytes32[] memory entries = new bytes32[](claims.length);
        for (uint256 i = 0; i < claims.length; i++) {
            bytes32 id = digestOf(ours, structHash(claims[i].voucher.channel));
            entries[i] = keccak256(abi.encode(CLAIM_ENTRY_TYPEHASH, id, claims[i].voucher.maxClaimableAmount, claims[i].totalClaimed));
        }
        return digestOf(ours, keccak256(abi.encode(CLAIM_BATCH_TYPEHASH, keccak256(abi.encodePacked(entries)))));
    }

    function structHash(ChannelConfig calldata config) private pure returns (bytes32) {
        return keccak256(abi.encode(CHANNEL_CONFIG_TYPEHASH, config));
    }

    function domain() private view returns (bytes32) {
        return domainOf("x402 Batch Settlement", "1");
    }
}

/// Brings deposits by EIP-3009. The nonce of the authorization names the channel, so nobody can redirect a deposit.
contract Collector {
    function collect(address payer, address token, uint256 amount, bytes32 channelId, bytes calldata data) external {
        require(msg.sender == 0x4020074e9dF2ce1deE5A9C1b5c3f541D02a10003, "only for payment channels");
        (uint256 validAfter, uint256 validBefore, uint256 salt, bytes memory signature) =
            abi.decode(data, (uint256, uint256, uint256, bytes));
        bytes32 nonce = keccak256(abi.encode(channelId, salt));
        Token(token).receiveWithAuthorization(payer, address(this), amount, validAfter, validBefore, nonce, signature);
        Token(token).transfer(msg.sender, amount);
    }
}
