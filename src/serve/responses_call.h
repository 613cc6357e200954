#pragma once

// A body of OpenAI's Responses as a conversation, and what its answer repeats of it. Source:
// spec/api.md section 6, spec/chat.md sections 2 and 3. Nothing is stored: `store` and
// `previous_response_id` have no effect, as with the published library.
//
// A refusal is kInvalid, HTTP status 400, and one line that names the field.

#include <boost/json.hpp>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "serve/chat_call.h"

namespace fathom {

struct ResponsesCall {
  ChatCall chat;
  boost::json::object echo;  // members of the response object that repeat the request
  // Of each function in a namespace, by the name that the model sees: namespace and own name.
  std::map<std::string, std::pair<std::string, std::string>> namespaces;
  std::set<std::string> custom;  // names of custom tools
};

Result<ResponsesCall> parse_responses_call(std::string_view body, int effort = kEffortHigh);

}  // namespace fathom
