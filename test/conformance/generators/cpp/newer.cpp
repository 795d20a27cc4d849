// Values and fields of a newer server do not break the SDK, and an unknown charge is not a false.
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "Parley/model/ParleyError.h"
#include "Parley/model/UnreadPage.h"

using namespace org::openapitools::client::model;

static void check(bool holds, const char* what)
{
    if (!holds) {
        std::cerr << what << std::endl;
        std::exit(1);
    }
}

int main()
{
    std::ifstream file("test/conformance/newer.json");
    const auto newer = web::json::value::parse(file);
    ParleyError error;
    check(error.fromJson(newer.at("error")), "the error cannot be read");
    check(error.getCode() == "code_of_a_newer_server" && !error.chargedIsSet(), "the error is another");
    UnreadPage unread;
    check(unread.fromJson(newer.at("unread")), "unread cannot be read");
    check(unread.getNotices().at(0)->getType() == "type_of_a_newer_server", "the notice is another");
    check(unread.getMessages().at(0)->getAbout()->getType() == "type_of_a_newer_server", "the message is another");
}
