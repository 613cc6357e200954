#include "text/tools_template.h"

#include <array>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/file.h"
#include "text/markers.h"
#include "text/python_literal.h"
#include "text/quote.h"
#include "text/utf8.h"

namespace fathom {
namespace {

constexpr uint64_t kFileBytesMax = 16 << 20;
constexpr std::string_view kSchemas = "tool_schemas";
constexpr int kPlaceholdersMax = 256;  // each may stand for a literal as long as the file

struct Placeholder {
  std::string_view name;
  std::string_view text;
  bool marker;
};

constexpr std::array kPlaceholders = {
    Placeholder{"dsml_token", kDsmlText, true},
    Placeholder{"thinking_start_token", kThinkOpenText, true},
    Placeholder{"thinking_end_token", kThinkCloseText, true},
    Placeholder{"tc_block_name", kCallsTag, false},
    Placeholder{"tool_call_tag_name", kInvokeTag, false},
    Placeholder{"tool_parameter_tag_name", kParameterTag, false},
};

// Fills the placeholders of a format text. `source` is the Python file it comes from, or empty.
class FormatReader {
 public:
  FormatReader(std::string_view format, std::string_view source)
      : format_(format), source_(source) {}

  Result<ToolsTemplate> read() {
    ToolsTemplate out;
    MarkedText* half = &out.head;
    while (at_ < format_.size()) {
      const char c = format_[at_];
      if (c != '{' && c != '}') {
        const size_t end = std::min(format_.find_first_of("{}", at_), format_.size());
        half->plain(format_.substr(at_, end - at_));
        at_ = end;
        continue;
      }
      if (format_.substr(at_ + 1, 1) == format_.substr(at_, 1)) {
        half->plain(format_.substr(at_, 1));
        at_ += 2;
        continue;
      }
      if (n_placeholders_++ == kPlaceholdersMax) {
        return invalid("tools template: wanted at most " + std::to_string(kPlaceholdersMax) +
                       " placeholders, found more");
      }
      FATHOM_ASSIGN_OR_RETURN(const std::string_view name, read_name());
      if (name != kSchemas) {
        FATHOM_RETURN_IF_ERROR(fill(name, half));
      } else if (half == &out.head) {
        half = &out.tail;
      } else {
        return invalid("tools template: wanted {tool_schemas} once, found it again");
      }
    }
    if (half == &out.head) return invalid("tools template: wanted {tool_schemas}, found none");
    return out;
  }

 private:
  Result<std::string_view> read_name() {
    const size_t end = format_.find('}', at_);
    if (format_[at_] == '}' || end == std::string_view::npos) {
      return invalid("tools template: byte " + std::to_string(at_) +
                     ": wanted a {placeholder} or a doubled brace, found a single one");
    }
    const std::string_view name = format_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return name;
  }

  Result<void> fill(std::string_view name, MarkedText* half) const {
    for (const Placeholder& known : kPlaceholders) {
      if (known.name != name) continue;
      known.marker ? half->marker(known.text) : half->plain(known.text);
      return {};
    }
    FATHOM_ASSIGN_OR_RETURN(const std::optional<std::string> value,
                            find_python_string(source_, name));
    if (!value || name.empty()) {
      return invalid("tools template: wanted a known placeholder, found " + quote(name));
    }
    half->plain(*value);
    return {};
  }

  std::string_view format_;
  std::string_view source_;
  size_t at_ = 0;
  int n_placeholders_ = 0;
};

Result<std::string> read_text_file(const std::string& path) {
  FATHOM_ASSIGN_OR_RETURN(std::string text, read_file(path, kFileBytesMax));
  if (const size_t good = utf8_valid_prefix(text); good < text.size()) {
    return invalid(path + ": byte " + std::to_string(good) + ": wanted UTF-8, found another byte");
  }
  return text;
}

}  // namespace

Result<ToolsTemplate> parse_tools_template(std::string_view format) {
  return FormatReader(format, {}).read();
}

Result<ToolsTemplate> parse_encoding_source(std::string_view source) {
  FATHOM_ASSIGN_OR_RETURN(const std::optional<std::string> literal,
                          find_python_string(source, "TOOLS_TEMPLATE"));
  if (!literal) return invalid("wanted an assignment to TOOLS_TEMPLATE, found none");
  return FormatReader(*literal, source).read();
}

Result<ToolsTemplate> load_tools_template(const std::string& model_dir) {
  const std::string own = model_dir + "/encoding/tools_template.txt";
  const std::string released = model_dir + "/encoding/encoding.py";
  FATHOM_ASSIGN_OR_RETURN(const bool has_own, has_file(own));
  const std::string& path = has_own ? own : released;
  auto text = read_text_file(path);
  if (!text && text.error().code == ErrorCode::kNotFound) {
    return not_found(model_dir + "/encoding: wanted tools_template.txt or encoding.py, found " +
                     "neither: requests with tools cannot be rendered");
  }
  if (!text) return text.error();
  auto parsed = has_own ? parse_tools_template(*text) : parse_encoding_source(*text);
  if (!parsed) return invalid(path + ": " + parsed.error().message);
  return parsed;
}

}  // namespace fathom
