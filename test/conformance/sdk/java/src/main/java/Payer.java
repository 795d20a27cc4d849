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
import java.util.Map;
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
    long validBefore = Instant.now().getEpochSecond() + offer.get("maxTimeoutSeconds").getAsLong();
    Map<String, Object> authorization = Map.of(
        "from", wallet.getAddress(), "to", offer.get("payTo"), "value", offer.get("amount"),
        "validAfter", "0", "validBefore", Long.toString(validBefore), "nonce", "0x" + random());
    JsonObject extensions = challenge.getAsJsonObject("extensions");
    extensions.add("payment-identifier", JSON.toJsonTree(Map.of("info", Map.of("required", false, "id", random()))));
    String payment = JSON.toJson(Map.of(
        "x402Version", 2, "resource", challenge.get("resource"), "accepted", offer, "extensions", extensions,
        "payload", Map.of("signature", signature(offer, authorization), "authorization", authorization)));
    return Base64.getEncoder().encodeToString(payment.getBytes(StandardCharsets.UTF_8));
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

  private String signature(JsonObject offer, Map<String, Object> authorization) throws IOException {
    JsonObject extra = offer.getAsJsonObject("extra");
    Map<String, Object> domain = Map.of(
        "name", extra.get("name"), "version", extra.get("version"),
        "chainId", text(offer, "network").substring("eip155:".length()), "verifyingContract", offer.get("asset"));
    String typed = JSON.toJson(Map.of(
        "types", JSON.fromJson(TRANSFER_WITH_AUTHORIZATION, JsonObject.class),
        "primaryType", "TransferWithAuthorization", "domain", domain, "message", authorization));
    Sign.SignatureData signature = Sign.signTypedData(typed, wallet.getEcKeyPair());
    return "0x" + HEX.formatHex(signature.getR()) + HEX.formatHex(signature.getS()) + HEX.formatHex(signature.getV());
  }

  /** 32 random bytes in hexadecimal. */
  private static String random() {
    byte[] bytes = new byte[32];
    RANDOM.nextBytes(bytes);
    return HEX.formatHex(bytes);
  }

  private static String text(JsonObject object, String field) {
    return object.get(field).getAsString();
  }
}
