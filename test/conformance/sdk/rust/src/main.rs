//! The SDK that OpenAPI Generator makes from the contract of a server, against a running `parley dev`: two agents register, one
//! writes to the other, the other reads. The first response with an API key is lost, and comes again to the same payment
//! with its identifier. Ends with 0 only if every response and the payee's balance are exactly right. Run by
//! test/conformance/live, whose environment variables it reads.

mod payer;

use anyhow::{Context, Result, anyhow, bail, ensure};
use parley::apis::account_api::{GetAgentProfileError, get_agent_profile, list_unread_messages};
use parley::apis::configuration::{ApiKey, Configuration};
use parley::apis::private_chat_api::{list_private_messages, send_private_message};
use parley::apis::registration_api::{create_account, request_account};
use parley::apis::{Error, ResponseContent};
use parley::models::{
    AgentProfileRequest, CreateAccountRequest, ListPrivateMessagesRequest, ParleyError, RequestAccountRequest,
    SendPrivateMessageRequest, SourceType, UnreadPage,
};
use payer::Payer;
use reqwest::{Request, Response, StatusCode};
use reqwest_middleware::{ClientBuilder, Middleware, Next};
use serde_json::Value;
use std::env;
use std::fmt::Debug;
use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};

const HELLO: &str = "Hello, Bob 👋 — from an SDK made for Rust.";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    newer_server()?;
    let url = env::var("PARLEY_URL")?;
    let facilitator = env::var("PARLEY_FACILITATOR")?;
    let payee = format!("{facilitator}/balances/{}", env::var("PARLEY_PAY_TO")?);
    let wallets = get(&format!("{facilitator}/accounts")).await?;
    let mut bill = Bill { contract: get(&format!("{url}/openapi.json")).await?, total: 0 };
    let before = amount(&get(&payee).await?["balance"])?;

    let alice = register(&mut bill, &url, &wallets[0], "alice").await?;
    let bob = register(&mut bill, &url, &wallets[1], "bob").await?;
    let profile = AgentProfileRequest { username: Some("bob".into()), ..Default::default() };
    let profile = bill.paid("post", "/agent/profile", get_agent_profile(&alice, profile)).await?;
    let message = SendPrivateMessageRequest::new(profile.agent_id, HELLO.into());
    let sent = bill.paid("post", "/chat/private/send", send_private_message(&alice, message)).await?;

    let unread = bill.paid("get", "/agent/unread", list_unread_messages(&bob, None, None, None)).await?;
    let [message] = unread.messages.as_slice() else { bail!("not one unread message: {unread:?}") };
    ensure!(message.message_id == sent.message_id, "another message is unread: {message:?}, want {sent:?}");
    ensure!(message.content == HELLO, "the unread message has another content: {message:?}");
    ensure!(message.sender_username == "alice", "the unread message has another sender: {message:?}");
    ensure!(message.source_type == SourceType::PrivateChat, "the unread message has another source: {message:?}");
    ensure!(message.source_id == sent.chat_id, "the unread message is of another chat: {message:?}, want {sent:?}");
    let unread = bill.paid("get", "/agent/unread", list_unread_messages(&bob, None, None, None)).await?;
    ensure!(unread.messages.is_empty(), "what was read is still unread: {unread:?}");

    let chat = ListPrivateMessagesRequest::new(sent.chat_id);
    let history = bill.paid("post", "/chat/private/messages", list_private_messages(&bob, chat)).await?;
    let [message] = history.messages.as_slice() else { bail!("not one message in the chat: {history:?}") };
    ensure!(message.content == HELLO, "the chat's message has another content: {message:?}");

    let nobody = AgentProfileRequest { username: Some("nobody".into()), ..Default::default() };
    // Every variant of the error holds a ParleyError, and whatever the status the SDK takes the first that fits.
    match get_agent_profile(&alice, nobody).await {
        Err(Error::ResponseError(ResponseContent {
            status,
            entity: Some(GetAgentProfileError::Status400(refusal)),
            ..
        })) => {
            ensure!(status == 404, "an agent that does not exist: {status}, want 404");
            ensure!(refusal.code == "agent_not_found", "the refusal has another code: {refusal:?}");
            ensure!(refusal.charged == Some(false), "the refusal was charged: {refusal:?}");
        }
        other => bail!("an agent that does not exist: {other:?}, want a typed error"),
    }

    ensure!(LOST.load(Ordering::Relaxed) > 0, "no response with an API key was lost");
    let received = amount(&get(&payee).await?["balance"])? - before;
    ensure!(received == bill.total, "the payee received {received}, want {}", bill.total);
    println!(
        "TABLE|openapi-generator (Rust, reqwest)|{}|an SDK compiles; two agents register, get a lost API key back, write, \
         read and pay {received} atomic units|0",
        env::var("OPENAPI_GENERATOR")?,
    );
    Ok(())
}

/// Values and fields of a newer server do not break the SDK, and an unknown charge is not a `false`.
fn newer_server() -> Result<()> {
    let newer: Value = serde_json::from_str(include_str!("../../../newer.json"))?;
    let error: ParleyError = serde_json::from_value(newer["error"].clone())?;
    ensure!(error.code == "code_of_a_newer_server" && error.charged.is_none(), "an error of a newer server: {error:?}");
    let unread: UnreadPage = serde_json::from_value(newer["unread"].clone())?;
    ensure!(unread.notices[0].r#type == "type_of_a_newer_server", "unread of a newer server: {unread:?}");
    Ok(())
}

/// Opens an account and returns the SDK's configuration that acts for it.
async fn register(bill: &mut Bill, url: &str, wallet: &Value, username: &str) -> Result<Configuration> {
    let payer = Payer::new(wallet["private_key"].as_str().context("the wallet has no key")?)?;
    let mut agent = Configuration {
        base_path: url.into(),
        client: ClientBuilder::new(reqwest::Client::new()).with(payer).with(LoseFirstKey).build(),
        ..Default::default()
    };
    let request = RequestAccountRequest::new(username.into());
    let reserved = bill.paid("post", "/register/request_account", request_account(&agent, request)).await?;
    let tan = reserved.tan;
    let request = CreateAccountRequest::new(username.into(), tan, "An agent that uses a generated SDK.".into());
    let account = bill.paid("post", "/register/create_account", create_account(&agent, request)).await?;
    agent.api_key = Some(ApiKey { prefix: None, key: account.api_key });
    Ok(agent)
}

/// Loses the first response with an API key, between the payer and the server.
struct LoseFirstKey;

static LOST: AtomicU32 = AtomicU32::new(0);

#[async_trait::async_trait]
impl Middleware for LoseFirstKey {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut http::Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let creates = request.url().path() == "/register/create_account";
        let response = next.run(request, extensions).await?;
        if creates && response.status() == StatusCode::OK && LOST.fetch_add(1, Ordering::Relaxed) == 0 {
            return Err(anyhow!("the response was lost").into());
        }
        Ok(response)
    }
}

/// What the paid calls cost, by the served contract, in atomic units.
struct Bill {
    contract: Value,
    total: u128,
}

impl Bill {
    async fn paid<T, E: Debug>(
        &mut self,
        method: &str,
        path: &str,
        call: impl Future<Output = Result<T, Error<E>>>,
    ) -> Result<T> {
        let response = call.await.map_err(|refusal| anyhow!("{method} {path}: {refusal:?}"))?;
        self.total +=
            amount(&self.contract["paths"][path][method]["x-payment-info"]["protocols"][0]["x402"]["amount"])?;
        Ok(response)
    }
}

fn amount(value: &Value) -> Result<u128> {
    Ok(value.as_str().context("no amount")?.parse()?)
}

async fn get(url: &str) -> Result<Value> {
    Ok(reqwest::get(url).await?.json().await?)
}
