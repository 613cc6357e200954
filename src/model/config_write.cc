// Writes a configuration in the released schema. The released configuration comes out as the
// published file does, byte for byte in every line.

#include <charconv>
#include <cmath>

#include "base/check.h"
#include "model/config.h"
#include "model/config_fields.h"

namespace fathom {
namespace {

class Writer {
 public:
  template <typename T>
  void field(const Key& key, const T& member) {
    begin(key.name);
    put(key, member);
  }

  void nullable(const Key& key, int64_t member) {
    begin(key.name);
    text_ += member < 0 ? "null" : std::to_string(member);
  }

  template <typename T, typename Visit>
  void object(const char* name, const T& member, Visit visit) {
    begin(name);
    open('{');
    visit(member, *this);
    close('}');
  }

  void open(char bracket) {
    text_ += bracket;
    ++depth_;
    first_ = true;
  }
  void close(char bracket) {
    --depth_;
    if (!first_) new_line();
    text_ += bracket;
    first_ = false;
  }
  std::string take() { return std::move(text_) + "\n"; }

 private:
  void new_line() {
    text_ += '\n';
    text_.append(2 * static_cast<size_t>(depth_), ' ');
  }
  void element() {
    if (!first_) text_ += ',';
    first_ = false;
    new_line();
  }
  void begin(const char* name) {
    element();
    text_ += '"';
    text_ += name;
    text_ += "\": ";
  }

  void put(const Key&, int64_t value) { text_ += std::to_string(value); }
  void put(const Key&, bool value) { text_ += value ? "true" : "false"; }
  void put(const Key& key, double value) {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
    const std::string_view shown(digits, static_cast<size_t>(end - digits));
    text_ += shown;
    const bool whole = shown.find_first_of(".en") == std::string_view::npos;
    if (whole && key.form == Form::kFloat) text_ += ".0";
  }
  void put(const Key& key, const std::optional<double>& value) {
    if (value.has_value()) {
      put(key, *value);
    } else {
      text_ += "null";
    }
  }
  void put(const Key&, const std::string& value) {
    constexpr char kHex[] = "0123456789abcdef";
    text_ += '"';
    for (const char c : value) {
      const auto code = static_cast<unsigned char>(c);
      if (code < ' ') {
        text_ += "\\u00";
        text_ += kHex[code >> 4];
        text_ += kHex[code & 15];
        continue;
      }
      if (c == '"' || c == '\\') text_ += '\\';
      text_ += c;
    }
    text_ += '"';
  }
  template <typename T>
  void put(const Key& key, const std::vector<T>& values) {
    open('[');
    for (const T& value : values) {
      element();
      put(key, value);
    }
    close(']');
    first_ = false;
  }

  std::string text_;
  int depth_ = 0;
  bool first_ = true;
};

}  // namespace

std::string config_to_json(const ModelConfig& config) {
  Writer writer;
  writer.open('{');
  visit_root(config, writer);
  writer.close('}');
  return writer.take();
}

}  // namespace fathom
