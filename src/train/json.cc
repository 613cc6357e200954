#include "train/json.h"

#include <cctype>
#include <cstdio>
#include <cstdlib>

namespace fathom::train {

class JsonParser {
 public:
  explicit JsonParser(std::string_view text) : text_(text) {}

  bool document(Json& out) {
    if (!value(out, 0)) {
      return false;
    }
    skip();
    return at_ == text_.size();
  }
  size_t position() const { return at_; }

 private:
  static constexpr int kMaxDepth = 64;

  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) {
      ++at_;
    }
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) {
      return false;
    }
    ++at_;
    return true;
  }
  bool word(std::string_view w) {
    if (text_.substr(at_, w.size()) != w) {
      return false;
    }
    at_ += w.size();
    return true;
  }

  bool value(Json& out, int depth) {
    skip();
    if (depth > kMaxDepth || at_ >= text_.size()) {
      return false;
    }
    switch (text_[at_]) {
      case '{':
        return object(out, depth);
      case '[':
        return array(out, depth);
      case '"':
        out.kind_ = Json::Kind::kString;
        return string(out.text_);
      case 't':
        out.kind_ = Json::Kind::kBool;
        out.flag_ = true;
        return word("true");
      case 'f':
        out.kind_ = Json::Kind::kBool;
        return word("false");
      case 'n':
        return word("null");
      default:
        return number(out);
    }
  }

  bool number(Json& out) {
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isdigit(static_cast<unsigned char>(text_[at_])) != 0 ||
            std::string_view("+-.eE").find(text_[at_]) != std::string::npos)) {
      ++at_;
    }
    out.kind_ = Json::Kind::kNumber;
    out.text_ = std::string(text_.substr(begin, at_ - begin));
    return !out.text_.empty();
  }

  bool array(Json& out, int depth) {
    out.kind_ = Json::Kind::kArray;
    take('[');
    if (take(']')) {
      return true;
    }
    do {
      out.array_.emplace_back();
      if (!value(out.array_.back(), depth + 1)) {
        return false;
      }
    } while (take(','));
    return take(']');
  }

  bool object(Json& out, int depth) {
    out.kind_ = Json::Kind::kObject;
    take('{');
    if (take('}')) {
      return true;
    }
    do {
      std::string key;
      skip();
      if (!string(key) || !take(':') || !value(out.object_[key], depth + 1)) {
        return false;
      }
    } while (take(','));
    return take('}');
  }

  bool string(std::string& out) {
    if (at_ >= text_.size() || text_[at_] != '"') {
      return false;
    }
    for (++at_; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return true;
      }
      if (c != '\\') {
        out += c;
      } else if (!escape(out)) {
        return false;
      }
    }
    return false;
  }

  bool escape(std::string& out) {
    if (++at_ >= text_.size()) {
      return false;
    }
    static constexpr std::string_view kFrom = "\"\\/bfnrt";
    static constexpr std::string_view kTo = "\"\\/\b\f\n\r\t";
    if (const size_t i = kFrom.find(text_[at_]); i != std::string_view::npos) {
      out += kTo[i];
      return true;
    }
    if (text_[at_] != 'u' || at_ + 4 >= text_.size()) {
      return false;
    }
    const long code = std::strtol(std::string(text_.substr(at_ + 1, 4)).c_str(), nullptr, 16);
    at_ += 4;
    if (code < 0x80) {
      out += static_cast<char>(code);
    } else if (code < 0x800) {
      out += static_cast<char>(0xC0 | (code >> 6));
      out += static_cast<char>(0x80 | (code & 0x3F));
    } else {
      out += static_cast<char>(0xE0 | (code >> 12));
      out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
      out += static_cast<char>(0x80 | (code & 0x3F));
    }
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
};

Result<Json> Json::parse(std::string_view text) {
  Json out;
  JsonParser parser(text);
  if (!parser.document(out)) {
    return invalid("json: not a document, error near byte " + std::to_string(parser.position()));
  }
  return out;
}

const Json* Json::find(const std::string& key) const {
  const auto it = object_.find(key);
  return it == object_.end() ? nullptr : &it->second;
}

int64_t Json::as_int(int64_t fallback) const {
  return kind_ == Kind::kNumber ? std::strtoll(text_.c_str(), nullptr, 10) : fallback;
}

double Json::as_double(double fallback) const {
  return kind_ == Kind::kNumber ? std::strtod(text_.c_str(), nullptr) : fallback;
}

bool Json::as_bool(bool fallback) const { return kind_ == Kind::kBool ? flag_ : fallback; }

std::string json_quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char buffer[8];
      std::snprintf(buffer, sizeof buffer, "\\u%04x", c);
      out += buffer;
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace fathom::train
