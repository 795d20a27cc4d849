import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.time.Instant;
import java.util.Base64;
import java.util.HexFormat;
import okhttp3.Interceptor;
import okhttp3.Request;
import okhttp3.Response;
import org.web3j.crypto.Credentials;
import org.web3j.crypto.Sign;

/**
 * Pays the calls of an OkHttp client with x402, version 2, scheme exact on an EVM chain: signs what the header
 * PAYMENT-REQUIRED of a 402 asks for and sends the same request once more. Each payment has a random payment identifier.
 * After a lost response, a 500, a 503 or a 409 payment_in_progress the same request goes out again with the same payment:
 * the server charges it once, and the identifier opens a stored response with a TAN or an API key. The payer signs whatever it
 * is asked for; a wallet that holds real money should first compare amount, asset and network with what its owner allows.
 */
final class Payer implements Interceptor {
  /** What EIP-3009 has the payer sign. The values around it come from the offer. */
  private static final String TRANSFER_WITH_AUTHORIZATION =
      """
      {
        "EIP712Domain": [
          {"name": "name", "type": "string"},
          {"name": "version", "type": "string"},
          {"name": "chainId", "type": "uint256"},
          {"name": "verifyingContract", "type": "address"}
        ],
        "TransferWithAuthorization": [
          {"name": "from", "type": "address"},
          {"name": "to", "type": "address"},
          {"name": "value", "type": "uint256"},
          {"name": "validAfter", "type": "uint256"},
          {"name": "validBefore", "type": "uint256"},
          {"name": "nonce", "type": "bytes32"}
        ]
      }
      """;

  /** How often a paid request is sent, a second apart, until its outcome is known. */
  private static final int TRIES = 30;

  private static final Gson JSON = new Gson();
  private static final HexFormat HEX = HexFormat.of();
  private static final SecureRandom RANDOM = new SecureRandom();

  private final Credentials wallet;

  Payer(String privateKey) {
    wallet = Credentials.create(privateKey);
  }

  @Override
  public Response intercept(Chain chain) throws IOException {
    Response response = chain.proceed(chain.request());
    String required = response.header("PAYMENT-REQUIRED");
    if (response.code() != 402 || required == null) {
      return response;
    }
    response.close();
    Request paid = chain.request().newBuilder().header("PAYMENT-SIGNATURE", payment(required)).build();
    for (int left = TRIES; ; left--) {
      try {
        Response reply = chain.proceed(paid);
        if (left == 1 || !open(reply)) {
          return reply;
        }
        reply.close();
      } catch (IOException lost) {
        if (left == 1) {
          throw lost;
        }
      }
      pause();
    }
  }

  /**
   * Whether the outcome of the payment is open, so that it must be sent again. Of the 409 only payment_in_progress has
   * Retry-After.
   */
  private static boolean open(Response response) {
    return response.code() >= 500 || response.code() == 409 && response.header("Retry-After") != null;
  }

  private static void pause() throws IOException {
    try {
      Thread.sleep(1000);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("interrupted while a payment's outcome is open");
    }
  }

  private String payment(String required) throws IOException {
    JsonObject challenge = JSON.fromJson(
        new String(Base64.getDecoder().decode(required), StandardCharsets.UTF_8), JsonObject.class);
    JsonObject offer = offer(challenge);
    JsonObject authorization = authorization(offer);
    JsonObject payload = new JsonObject();
    payload.addProperty("signature", signature(offer, authorization));
    payload.add("authorization", authorization);
    JsonObject payment = new JsonObject();
    payment.addProperty("x402Version", 2);
    payment.add("resource", challenge.get("resource"));
    payment.add("accepted", offer);
    payment.add("payload", payload);
    payment.add("extensions", named(challenge.getAsJsonObject("extensions")));
    return Base64.getEncoder().encodeToString(JSON.toJson(payment).getBytes(StandardCharsets.UTF_8));
  }

  /** The extensions that the server offers, with a payment identifier. */
  private static JsonObject named(JsonObject offered) {
    byte[] id = new byte[32];
    RANDOM.nextBytes(id);
    JsonObject info = new JsonObject();
    info.addProperty("required", false);
    info.addProperty("id", HEX.formatHex(id));
    JsonObject identifier = new JsonObject();
    identifier.add("info", info);
    JsonObject extensions = offered == null ? new JsonObject() : offered.deepCopy();
    extensions.add("payment-identifier", identifier);
    return extensions;
  }

  private static JsonObject offer(JsonObject challenge) throws IOException {
    for (JsonElement accepted : challenge.getAsJsonArray("accepts")) {
      JsonObject offer = accepted.getAsJsonObject();
      if (text(offer, "scheme").equals("exact") && text(offer, "network").startsWith("eip155:")) {
        return offer;
      }
    }
    throw new IOException("the server takes no payment by scheme exact on an EVM chain");
  }

  private JsonObject authorization(JsonObject offer) {
    byte[] nonce = new byte[32];
    RANDOM.nextBytes(nonce);
    long validBefore = Instant.now().getEpochSecond() + offer.get("maxTimeoutSeconds").getAsLong();
    JsonObject authorization = new JsonObject();
    authorization.addProperty("from", wallet.getAddress());
    authorization.addProperty("to", text(offer, "payTo"));
    authorization.addProperty("value", text(offer, "amount"));
    authorization.addProperty("validAfter", "0");
    authorization.addProperty("validBefore", Long.toString(validBefore));
    authorization.addProperty("nonce", "0x" + HEX.formatHex(nonce));
    return authorization;
  }

  private String signature(JsonObject offer, JsonObject authorization) throws IOException {
    JsonObject domain = new JsonObject();
    domain.add("name", offer.getAsJsonObject("extra").get("name"));
    domain.add("version", offer.getAsJsonObject("extra").get("version"));
    domain.addProperty("chainId", text(offer, "network").substring("eip155:".length()));
    domain.add("verifyingContract", offer.get("asset"));
    JsonObject typed = new JsonObject();
    typed.add("types", JSON.fromJson(TRANSFER_WITH_AUTHORIZATION, JsonObject.class));
    typed.addProperty("primaryType", "TransferWithAuthorization");
    typed.add("domain", domain);
    typed.add("message", authorization);
    Sign.SignatureData signature = Sign.signTypedData(JSON.toJson(typed), wallet.getEcKeyPair());
    return "0x" + HEX.formatHex(signature.getR()) + HEX.formatHex(signature.getS()) + HEX.formatHex(signature.getV());
  }

  private static String text(JsonObject object, String field) {
    return object.get(field).getAsString();
  }
}
