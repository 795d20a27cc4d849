import chat.parley.infrastructure.Serializer
import chat.parley.models.ParleyError
import chat.parley.models.UnreadPage
import com.google.gson.JsonObject
import java.io.File

/** Values and fields of a newer server do not break the SDK, and an unknown charge is not a false. */
fun main() {
    val newer = Serializer.gson.fromJson(File("test/conformance/newer.json").readText(), JsonObject::class.java)
    val error = Serializer.gson.fromJson(newer["error"], ParleyError::class.java)
    check(error.code == "code_of_a_newer_server" && error.charged == null) { error }
    val unread = Serializer.gson.fromJson(newer["unread"], UnreadPage::class.java)
    check(unread.notices[0].type == "type_of_a_newer_server") { unread }
    check(unread.messages[0].about?.type == "type_of_a_newer_server") { unread }
}
