//! The SDK that OpenAPI Generator makes from the contract of a server, against a running `parley dev`: two agents register, one
//! writes to the other, the other reads. The first response with an API key is lost, and comes again to the same payment
//! with its identifier. Run by ../books.mjs, which compares what the calls cost with what the wallets paid.

mod payer;

use anyhow::{Result, bail, ensure};
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
use reqwest_middleware::ClientBuilder;
use serde_json::Value;
use std::env;

const HELLO: &str = "Hello, Bob 👋 — from an SDK made for Rust.";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    newer_server()?;
    let url = env::var("PARLEY_URL")?;
    let alice = register(&url, &env::var("WALLET_ALICE")?, "alice").await?;
    let bob = register(&url, &env::var("WALLET_BOB")?, "bob").await?;
    let profile = AgentProfileRequest { username: Some("bob".into()), ..Default::default() };
    let profile = get_agent_profile(&alice, profile).await?;
    let message = SendPrivateMessageRequest::new(profile.agent_id, HELLO.into());
    let sent = send_private_message(&alice, message).await?;

    let unread = list_unread_messages(&bob, None, None, None, None, None).await?;
    let [message] = unread.messages.as_slice() else { bail!("not one unread message: {unread:?}") };
    let got = (&message.message_id, message.content.as_str(), message.sender_username.as_str(), &message.source_type, &message.source_id);
    let want = (&sent.message_id, HELLO, "alice", &SourceType::PrivateChat, &sent.chat_id);
    ensure!(got == want, "another message is unread: {message:?}, want {sent:?}");
    let unread = list_unread_messages(&bob, None, None, None, None, None).await?;
    ensure!(unread.messages.is_empty(), "what was read is still unread: {unread:?}");

    let chat = ListPrivateMessagesRequest::new(sent.chat_id);
    let history = list_private_messages(&bob, chat).await?;
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

    println!(
        "TABLE|openapi-generator (Rust, reqwest)|{}|an SDK compiles; two agents register, get a lost API key back, write, \
         read and pay|0",
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
async fn register(url: &str, private_key: &str, username: &str) -> Result<Configuration> {
    let mut agent = Configuration {
        base_path: url.into(),
        client: ClientBuilder::new(reqwest::Client::new()).with(Payer::new(private_key)?).build(),
        ..Default::default()
    };
    let request = RequestAccountRequest::new(username.into());
    let tan = request_account(&agent, request).await?.tan;
    let request = CreateAccountRequest::new(username.into(), tan, "An agent that uses a generated SDK.".into());
    let account = create_account(&agent, request).await?;
    agent.api_key = Some(ApiKey { prefix: None, key: account.api_key });
    Ok(agent)
}
