#include "text/json_output.h"

#include <boost/json.hpp>
#include <cmath>
#include <string_view>

#include "text/json_text.h"
#include "text/utf8.h"

namespace fathom {
namespace {

namespace json = boost::json;

void append_text(std::string* out, std::string_view text) {
  out->push_back('"');
  if (utf8_valid_prefix(text) == text.size()) {
    append_json_escaped(out, text);
  } else {
    std::string well_formed;
    const size_t n = utf8_append_decided(text, &well_formed);
    if (n < text.size()) utf8_append(&well_formed, kReplacementCharacter);
    append_json_escaped(out, well_formed);
  }
  out->push_back('"');
}

template <typename Items, typename Append>
void append_items(std::string* out, const char* brackets, const Items& items, Append append) {
  out->push_back(brackets[0]);
  bool first = true;
  for (const auto& item : items) {
    if (!first) out->push_back(',');
    first = false;
    append(item);
  }
  out->push_back(brackets[1]);
}

void append_value(std::string* out, const json::value& value) {
  if (value.is_string()) {
    append_text(out, value.get_string());
  } else if (value.is_double()) {
    *out += std::isfinite(value.get_double()) ? json_double(value.get_double()) : "null";
  } else if (value.is_array()) {
    append_items(out, "[]", value.get_array(),
                 [&](const json::value& element) { append_value(out, element); });
  } else if (value.is_object()) {
    append_items(out, "{}", value.get_object(), [&](const auto& member) {
      append_text(out, member.key());
      out->push_back(':');
      append_value(out, member.value());
    });
  } else {
    *out += json::serialize(value);
  }
}

}  // namespace

std::string json_output(const json::value& value) {
  std::string out;
  append_value(&out, value);
  return out;
}

}  // namespace fathom
