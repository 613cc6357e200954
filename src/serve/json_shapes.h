#pragma once

// Pieces of JSON that several protocols share.

#include <boost/json.hpp>
#include <string>

#include "serve/reply.h"
#include "text/json_text.h"

namespace fathom {

boost::json::value boost_json(const Json& value);

// A token's bytes as text: as they are, or where they are no UTF-8 each as \xHH.
std::string token_text(std::string_view bytes);

// {"token", "logprob", "bytes", "top_logprobs": [{"token", "logprob", "bytes"}]}
boost::json::object logged_json(const LoggedToken& token);
boost::json::array logged_json(const std::vector<LoggedToken>& tokens);

// "usage" of Chat Completions and Completions.
boost::json::object usage_json(const ReplyUsage& usage);

// Adds the member `fathom`, what fathom says beyond a protocol; null stands for no effort.
void add_own(boost::json::object& body, const ReplyHead& head, const ReplyUsage& usage,
             boost::json::value effort);

// id, object, created, model, system_fingerprint
boost::json::object head_json(const ReplyHead& head, const char* object);

}  // namespace fathom
