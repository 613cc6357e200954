#pragma once

// Translation: a body of another protocol in the form of Chat Completions, on its way through
// parse_chat_request, so that one set of checks serves all. A refusal comes back in the names of
// the body that was sent.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat_request.h"

namespace fathom {

// {"type": "text", "text": ...}
Json text_part(std::string text);
Json image_part(std::string url, const Json* detail);

// One name of a Chat Completions body and what it was called: "stop" and "stop_sequences".
using Renaming = std::pair<std::string, std::string>;

class Translation {
 public:
  // `place` is where it stood in the body that was sent.
  void add_message(JsonObject message, const std::string& place);
  // A message with content alone; content is a string or an array of parts.
  void add_message(const char* role, Json content, const std::string& place);
  // `schema` is the name of its parameters there.
  void add_tool(JsonObject function, const std::string& place, const char* schema);
  void set(const char* name, Json value);
  // More specific names first.
  void rename(std::string from, std::string to) {
    renamings_.emplace_back(std::move(from), std::move(to));
  }

  // Where a part of the message that is added next stood.
  void rename_part(size_t part, const std::string& place);
  // The URL of an image inside its part.
  void name_image_url(const char* name) { image_url_ = name; }

  size_t n_messages() const { return messages_.size(); }
  // The request keeps its empty system messages.
  Result<ChatRequest> parse(const ChatDefaults& defaults);

 private:
  std::string renamed(const std::string& text) const;

  JsonObject body_;
  JsonArray messages_;
  JsonArray tools_;
  std::vector<Renaming> renamings_;
  const char* image_url_ = "image_url.url";
};

}  // namespace fathom
