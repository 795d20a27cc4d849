import chat.parley.ApiClient;
import chat.parley.ApiException;
import chat.parley.ApiResponse;
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
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.IOException;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.List;
import java.util.Objects;
import okhttp3.Interceptor;
import okhttp3.OkHttpClient;
import okhttp3.Request;
import okhttp3.Response;

/**
 * The SDK that OpenAPI Generator makes from the contract of a server, against a running `parley dev`: two agents register, one
 * writes to the other, the other reads. The first response with an API key is lost, and comes again to the same payment with
 * its identifier. Ends with 0 only if every response and the payee's balance are exactly right. Run by test/conformance/live, whose
 * environment variables it reads.
 */
public final class Journey {
  private static final String URL = System.getenv("PARLEY_URL");
  private static final String FACILITATOR = System.getenv("PARLEY_FACILITATOR");
  private static final String HELLO = "Hello, Bob 👋 — from an SDK made for Java.";

  private static final OkHttpClient PLAIN = new OkHttpClient();
  private static final JsonObject CONTRACT = get(URL + "/openapi.json").getAsJsonObject();

  /** What the paid calls cost so far, by the served contract, in atomic units. */
  private static BigInteger expected = BigInteger.ZERO;

  public static void main(String[] arguments) throws ApiException, IOException {
    newerServer();
    JsonArray wallets = get(FACILITATOR + "/accounts").getAsJsonArray();
    BigInteger before = payee();

    Agent alice = new Agent(wallets.get(0), "alice");
    Agent bob = new Agent(wallets.get(1), "bob");
    String bobsId = paid("post", "/agent/profile",
        () -> alice.account.getAgentProfileWithHttpInfo(new AgentProfileRequest().username("bob"))).getAgentId();
    SentPrivateMessage sent = paid("post", "/chat/private/send",
        () -> alice.chats.sendPrivateMessageWithHttpInfo(
            new SendPrivateMessageRequest().recipientAgentId(bobsId).content(HELLO)));

    UnreadPage unread = paid("get", "/agent/unread", bob::unread);
    equal("unread messages", 1, unread.getMessages().size());
    UnreadMessage message = unread.getMessages().get(0);
    equal("id of the unread message", sent.getMessageId(), message.getMessageId());
    equal("content of the unread message", HELLO, message.getContent());
    equal("sender of the unread message", "alice", message.getSenderUsername());
    equal("source of the unread message", SourceType.PRIVATE_CHAT, message.getSourceType());
    equal("chat of the unread message", sent.getChatId(), message.getSourceId());
    equal("unread messages once they are read", List.of(), paid("get", "/agent/unread", bob::unread).getMessages());

    MessagePage history = paid("post", "/chat/private/messages",
        () -> bob.chats.listPrivateMessagesWithHttpInfo(new ListPrivateMessagesRequest().chatId(sent.getChatId())));
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

    equal("responses with an API key that were lost", 1, lost);
    equal("what the payee received", expected, payee().subtract(before));
    System.out.printf("TABLE|openapi-generator (Java, okhttp-gson)|%s|an SDK compiles; two agents register, get a lost "
        + "API key back, write, read and pay %s atomic units|0%n", System.getenv("OPENAPI_GENERATOR"), expected);
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

    Agent(JsonElement wallet, String username) throws ApiException {
      Payer payer = new Payer(wallet.getAsJsonObject().get("private_key").getAsString());
      ApiClient client = new ApiClient(new OkHttpClient.Builder()
          .addInterceptor(payer).addInterceptor(Journey::loseFirstKey).build());
      client.setBasePath(URL);
      RegistrationApi registration = new RegistrationApi(client);
      String tan = paid("post", "/register/request_account",
          () -> registration.requestAccountWithHttpInfo(new RequestAccountRequest().requestedUsername(username)))
          .getTan();
      client.setApiKey(paid("post", "/register/create_account",
          () -> registration.createAccountWithHttpInfo(new CreateAccountRequest()
              .username(username).tan(tan).description("An agent that uses a generated SDK."))).getApiKey());
      account = new AccountApi(client);
      chats = new PrivateChatApi(client);
    }

    ApiResponse<UnreadPage> unread() throws ApiException {
      return account.listUnreadMessagesWithHttpInfo(null, null, null);
    }
  }

  /** How many responses with an API key were lost. */
  private static int lost;

  /** Loses the first response with an API key, between the payer and the server. */
  private static Response loseFirstKey(Interceptor.Chain chain) throws IOException {
    Response response = chain.proceed(chain.request());
    boolean hasKey = response.code() == 200 && chain.request().url().encodedPath().equals("/register/create_account");
    if (lost > 0 || !hasKey) {
      return response;
    }
    lost++;
    response.close();
    throw new IOException("the response was lost");
  }

  private interface Call<T> {
    ApiResponse<T> call() throws ApiException;
  }

  /** Makes a paid call that must return 200 and name its settlement, and adds its price to what is expected. */
  private static <T> T paid(String method, String path, Call<T> call) throws ApiException {
    ApiResponse<T> response = call.call();
    equal("status of " + path, 200, response.getStatusCode());
    String header = response.getHeaders().entrySet().stream()
        .filter(entry -> entry.getKey().equalsIgnoreCase("PAYMENT-RESPONSE"))
        .map(entry -> entry.getValue().get(0))
        .findFirst().orElseThrow(() -> new AssertionError(path + " returned no header PAYMENT-RESPONSE"));
    JsonObject settlement = JsonParser.parseString(
        new String(Base64.getDecoder().decode(header), StandardCharsets.UTF_8)).getAsJsonObject();
    equal("settlement of " + path, true, settlement.get("success").getAsBoolean());
    expected = expected.add(price(method, path));
    return response.getData();
  }

  private static BigInteger price(String method, String path) {
    return CONTRACT.getAsJsonObject("paths").getAsJsonObject(path).getAsJsonObject(method)
        .getAsJsonObject("x-payment-info").getAsJsonArray("protocols").get(0).getAsJsonObject()
        .getAsJsonObject("x402").get("amount").getAsBigInteger();
  }

  private static BigInteger payee() {
    return get(FACILITATOR + "/balances/" + System.getenv("PARLEY_PAY_TO"))
        .getAsJsonObject().get("balance").getAsBigInteger();
  }

  private static JsonElement get(String url) {
    try (Response response = PLAIN.newCall(new Request.Builder().url(url).build()).execute()) {
      return JsonParser.parseString(response.body().string());
    } catch (IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }

  private static void equal(String what, Object want, Object got) {
    if (!Objects.equals(want, got)) {
      throw new AssertionError(what + ": " + got + ", want " + want);
    }
  }
}
