//! Pays the calls of a reqwest client with x402, version 2, scheme exact on an EVM chain.

use anyhow::{Context, Result, anyhow, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k256::ecdsa::SigningKey;
use reqwest::header::{HeaderValue, RETRY_AFTER};
use reqwest::{Request, Response, StatusCode};
use reqwest_middleware::{Middleware, Next};
use serde_json::{Value, json};
use sha3::{Digest, Keccak256};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Signs what the header PAYMENT-REQUIRED of a 402 asks for and sends the same request once more. Each payment has a
/// random payment identifier. After a lost response, a 500, a 503 or a 409 payment_in_progress the same request goes out
/// again with the same payment: the server charges it once, and the identifier opens a stored response with a TAN or an
/// API key. The payer signs whatever it is asked for; a wallet that holds real money should first compare amount, asset
/// and network with what its owner allows.
pub struct Payer(SigningKey);

#[async_trait::async_trait]
impl Middleware for Payer {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut http::Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let again = request.try_clone();
        let response = next.clone().run(request, extensions).await?;
        let required = response.headers().get("PAYMENT-REQUIRED");
        let (StatusCode::PAYMENT_REQUIRED, Some(required), Some(mut again)) = (response.status(), required, again)
        else {
            return Ok(response);
        };
        let payment = self.payment(required)?;
        again.headers_mut().insert("PAYMENT-SIGNATURE", payment);
        for _ in 1..TRIES {
            let Some(copy) = again.try_clone() else { break };
            match next.clone().run(copy, extensions).await {
                Ok(response) if !is_open(&response) => return Ok(response),
                _ => {} // lost, or not known yet
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        next.run(again, extensions).await
    }
}

/// How often a paid request is sent, a second apart, until its outcome is known.
const TRIES: u32 = 30;

/// Whether the outcome of the payment is open, so that it must be sent again. Of the 409 only payment_in_progress has
/// Retry-After.
fn is_open(response: &Response) -> bool {
    let in_progress = response.status() == StatusCode::CONFLICT && response.headers().contains_key(RETRY_AFTER);
    response.status().is_server_error() || in_progress
}

impl Payer {
    pub fn new(private_key: &str) -> Result<Payer> {
        Ok(Payer(SigningKey::from_slice(&bytes(private_key)?)?))
    }

    fn payment(&self, required: &HeaderValue) -> Result<HeaderValue> {
        let challenge: Value = serde_json::from_slice(&STANDARD.decode(required)?)?;
        let (offer, chain) = challenge["accepts"]
            .as_array()
            .context("the 402 offers no way to pay")?
            .iter()
            .filter(|offer| offer["scheme"] == "exact")
            .find_map(|offer| Some((offer, offer["network"].as_str()?.strip_prefix("eip155:")?)))
            .context("the server takes no payment by scheme exact on an EVM chain")?;
        let timeout = offer["maxTimeoutSeconds"].as_u64().context("maxTimeoutSeconds is no number")?;
        let valid_before = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() + timeout;
        let mut nonce = [0; 32];
        getrandom::fill(&mut nonce)?;
        let authorization = json!({
            "from": self.address(),
            "to": offer["payTo"],
            "value": offer["amount"],
            "validAfter": "0",
            "validBefore": valid_before.to_string(),
            "nonce": hexadecimal(&nonce),
        });
        let (signature, recovery) = self.0.sign_prehash_recoverable(&digest(offer, chain, &authorization)?);
        let mut signature = signature.to_bytes().to_vec();
        signature.push(27 + recovery.to_byte());
        let payment = json!({
            "x402Version": 2,
            "resource": challenge["resource"],
            "accepted": offer,
            "payload": {"signature": hexadecimal(&signature), "authorization": authorization},
            "extensions": named(&challenge["extensions"])?,
        });
        Ok(HeaderValue::try_from(STANDARD.encode(payment.to_string()))?)
    }

    fn address(&self) -> String {
        let key = self.0.verifying_key().to_sec1_point(false);
        hexadecimal(&keccak(&[&key.as_bytes()[1..]])[12..])
    }
}

/// The extensions that the server offers, with a payment identifier.
fn named(offered: &Value) -> Result<Value> {
    let mut id = [0; 32];
    getrandom::fill(&mut id)?;
    let mut extensions = offered.as_object().cloned().unwrap_or_default();
    extensions.insert("payment-identifier".into(), json!({"info": {"required": false, "id": hex::encode(id)}}));
    Ok(extensions.into())
}

/// What EIP-712 has the payer sign of EIP-3009's TransferWithAuthorization.
fn digest(offer: &Value, chain: &str, authorization: &Value) -> Result<[u8; 32]> {
    let domain = keccak(&[
        &keccak(&[b"EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"]),
        &keccak(&[text(&offer["extra"]["name"])?.as_bytes()]),
        &keccak(&[text(&offer["extra"]["version"])?.as_bytes()]),
        &number(chain)?,
        &word(&offer["asset"])?,
    ]);
    let transfer = keccak(&[
        &keccak(&[b"TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,\
            uint256 validBefore,bytes32 nonce)"]),
        &word(&authorization["from"])?,
        &word(&authorization["to"])?,
        &number(text(&authorization["value"])?)?,
        &number(text(&authorization["validAfter"])?)?,
        &number(text(&authorization["validBefore"])?)?,
        &word(&authorization["nonce"])?,
    ]);
    Ok(keccak(&[b"\x19\x01", &domain, &transfer]))
}

fn keccak(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Keccak256::new();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().into()
}

/// The 32 bytes that stand for an address or a nonce.
fn word(value: &Value) -> Result<[u8; 32]> {
    let bytes = bytes(text(value)?)?;
    ensure!(bytes.len() <= 32, "{value} is longer than 32 bytes");
    let mut word = [0; 32];
    word[32 - bytes.len()..].copy_from_slice(&bytes);
    Ok(word)
}

/// The 32 bytes that stand for a decimal number.
fn number(decimal: &str) -> Result<[u8; 32]> {
    let mut word = [0; 32];
    word[16..].copy_from_slice(&decimal.parse::<u128>()?.to_be_bytes());
    Ok(word)
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().ok_or_else(|| anyhow!("{value} is no text"))
}

fn bytes(hexadecimal: &str) -> Result<Vec<u8>> {
    Ok(hex::decode(hexadecimal.strip_prefix("0x").unwrap_or(hexadecimal))?)
}

fn hexadecimal(bytes: &[u8]) -> String {
    format!("0x{}", hex::encode(bytes))
}
