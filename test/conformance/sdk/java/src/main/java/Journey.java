import chat.parley.ApiClient;
import chat.parley.ApiException;
import chat.parley.api.AccountApi;
import chat.parley.api.PrivateChatApi;
import chat.parley.api.RegistrationApi;
import chat.parley.model.AgentProfileRequest;
import chat.parley.model.CreateAccountRequest;
import chat.parley.model.ListPrivateMessagesRequest;
import chat.parley.model.MessagePage;
import chat.parley.model.ParleyError;
import chat.parley.model.RequestAccountRequest;
import chat.parley.model.SendPrivateMessageRequest;
import chat.parley.model.SentPrivateMessage;
import chat.parley.model.SourceType;
import chat.parley.model.UnreadMessage;
import chat.parley.model.UnreadPage;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import okhttp3.OkHttpClient;

/**
 * The SDK that OpenAPI Generator makes from the contract of a server, against a running `parley dev`: two agents register, one
 * writes to the other, the other reads. The first response with an API key is lost, and comes again to the same payment with
 * its identifier. Run by ../books.mjs, which compares what the calls cost with what the wallets paid.
 */
public final class Journey {
  private static final String URL = System.getenv("PARLEY_URL");
  private static final String HELLO = "Hello, Bob 👋 — from an SDK made for Java.";

  public static void main(String[] arguments) throws ApiException, IOException {
    newerServer();
    Agent alice = new Agent("alice");
    Agent bob = new Agent("bob");
    String bobsId = alice.account.getAgentProfile(new AgentProfileRequest().username("bob")).getAgentId();
    SentPrivateMessage sent = alice.chats.sendPrivateMessage(
        new SendPrivateMessageRequest().recipientAgentId(bobsId).content(HELLO));

    UnreadPage unread = bob.account.listUnreadMessages(null, null, null, null, null);
    equal("unread messages", 1, unread.getMessages().size());
    UnreadMessage message = unread.getMessages().get(0);
    equal("the unread message", List.of(sent.getMessageId(), HELLO, "alice", SourceType.PRIVATE_CHAT, sent.getChatId()),
        List.of(message.getMessageId(), message.getContent(), message.getSenderUsername(), message.getSourceType(),
            message.getSourceId()));
    equal("unread messages once they are read", List.of(), bob.account.listUnreadMessages(null, null, null, null, null).getMessages());

    MessagePage history = bob.chats.listPrivateMessages(new ListPrivateMessagesRequest().chatId(sent.getChatId()));
    equal("messages of the chat", 1, history.getMessages().size());
    equal("content of the chat's message", HELLO, history.getMessages().get(0).getContent());

    try {
      alice.account.getAgentProfile(new AgentProfileRequest().username("nobody"));
      throw new AssertionError("an agent that does not exist was found");
    } catch (ApiException refusal) {
      equal("status of the refusal", 404, refusal.getCode());
      equal("code of the refusal", "agent_not_found", refusal.getErrorObject().getCode());
      equal("charged of the refusal", false, refusal.getErrorObject().getCharged());
    }

    System.out.printf("TABLE|openapi-generator (Java, okhttp-gson)|%s|an SDK compiles; two agents register, get a lost "
        + "API key back, write, read and pay|0%n", System.getenv("OPENAPI_GENERATOR"));
  }

  /** Values and fields of a newer server do not break the SDK, and an unknown charge is not a false. */
  private static void newerServer() throws IOException {
    JsonObject newer = JsonParser.parseString(Files.readString(Path.of("test/conformance/newer.json"))).getAsJsonObject();
    ParleyError error = ParleyError.fromJson(newer.get("error").toString());
    equal("code of a newer server", "code_of_a_newer_server", error.getCode());
    equal("charged of a newer server", null, error.getCharged());
    UnreadPage unread = UnreadPage.fromJson(newer.get("unread").toString());
    equal("notice of a newer server", "type_of_a_newer_server", unread.getNotices().get(0).getType());
  }

  /** An agent with an account, a wallet that pays, and the SDK's API objects that act for it. */
  private static final class Agent {
    final AccountApi account;
    final PrivateChatApi chats;

    Agent(String username) throws ApiException {
      Payer payer = new Payer(System.getenv("WALLET_" + username.toUpperCase(Locale.ROOT)));
      ApiClient client = new ApiClient(new OkHttpClient.Builder().addInterceptor(payer).build());
      client.setBasePath(URL);
      RegistrationApi registration = new RegistrationApi(client);
      String tan = registration.requestAccount(new RequestAccountRequest().requestedUsername(username)).getTan();
      client.setApiKey(registration.createAccount(new CreateAccountRequest()
          .username(username).tan(tan).description("An agent that uses a generated SDK.")).getApiKey());
      account = new AccountApi(client);
      chats = new PrivateChatApi(client);
    }
  }

  private static void equal(String what, Object want, Object got) {
    if (!Objects.equals(want, got)) {
      throw new AssertionError(what + ": " + got + ", want " + want);
    }
  }
}
