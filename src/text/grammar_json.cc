#include "text/grammar_json.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "text/grammar_number.h"
#include "text/utf8.h"

namespace fathom {

using Expr = GrammarBuilder::Expr;

JsonParts::JsonParts(GrammarBuilder& builder, const CharacterSet& escaped) : b_(builder) {
  std::vector<CharacterSet::Range> all = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  all.insert(all.end(), escaped.ranges().begin(), escaped.ranges().end());
  escaped_ = CharacterSet(std::move(all));
}

std::string JsonParts::spelled(std::string_view json) const {
  std::string out;
  for (const char32_t c : utf8_characters(json)) {
    if (c < 0x80 || !escaped_.contains(c)) {
      utf8_append(&out, c);
    } else {
      char number[16];
      std::snprintf(number, sizeof(number), "\\u%04x", static_cast<unsigned>(c));
      out += number;
    }
  }
  return out;
}

Expr JsonParts::shared(const std::string& name, const std::function<Expr()>& make) {
  const auto found = shared_.find(name);
  if (found != shared_.end()) return b_.call(found->second);
  const GrammarBuilder::RuleId rule = b_.declare(name);
  shared_.emplace(name, rule);
  b_.define(rule, make());
  return b_.call(rule);
}

Expr JsonParts::space() {
  return shared("space", [&] {
    constexpr int64_t kIndent = 40;
    const Expr blank = b_.choice({b_.bytes(" "), b_.bytes("\t")});
    const Expr indent = b_.sequence({b_.bytes("\n"), b_.repeat(blank, 0, kIndent)});
    return b_.choice({b_.empty(), b_.bytes(" "), indent});
  });
}

Expr JsonParts::comma() { return b_.sequence({b_.bytes(","), space()}); }

Expr JsonParts::key(std::string_view name) {
  return b_.sequence({b_.bytes(spelled(json_quoted(name)) + ":"), space()});
}

Expr JsonParts::quoted(Expr content) {
  return b_.sequence({b_.bytes("\""), content, b_.bytes("\"")});
}

Expr JsonParts::braces(Expr members) {
  return b_.sequence({b_.bytes("{"), space(), members, space(), b_.bytes("}")});
}

Expr JsonParts::brackets(Expr items) {
  return b_.sequence({b_.bytes("["), space(), items, space(), b_.bytes("]")});
}

Expr JsonParts::listed(Expr item) {
  return b_.optional(b_.sequence({item, b_.repeat(b_.sequence({comma(), item}), 0, -1)}));
}

Expr JsonParts::literal(const Json& value) {
  std::vector<Expr> parts;
  const auto separate = [&] {
    if (!parts.empty()) parts.push_back(comma());
  };
  if (const JsonArray* array = value.as_array()) {
    for (const Json& item : *array) {
      separate();
      parts.push_back(literal(item));
    }
    return brackets(b_.sequence(std::move(parts)));
  }
  if (const JsonObject* object = value.as_object()) {
    for (const JsonMember& member : *object) {
      separate();
      parts.push_back(b_.sequence({key(member.key), literal(member.value)}));
    }
    return braces(b_.sequence(std::move(parts)));
  }
  return b_.bytes(spelled(json_text(value)));
}

// One code point: as it is, by a short escape, or by its number, which for the upper planes is a
// pair. Half a pair is no character.
Expr JsonParts::string_character() {
  return shared("character", [&] {
    const Expr raw = b_.characters(escaped_.complement());
    std::vector<Expr> letters;
    for (const char c : std::string_view("\"\\/bfnrt")) letters.push_back(b_.bytes({&c, 1}));
    const auto one_of = [&](std::string_view low, std::string_view high) {
      std::vector<Expr> ranges;
      for (size_t i = 0; i < low.size(); ++i) {
        ranges.push_back(
            b_.byte_range(static_cast<uint8_t>(low[i]), static_cast<uint8_t>(high[i])));
      }
      return b_.choice(std::move(ranges));
    };
    const Expr hex = one_of("0aA", "9fF");
    const Expr not_d = b_.sequence({one_of("0aAeE", "9cCfF"), hex, hex, hex});
    const Expr low_d = b_.sequence({one_of("dD", "dD"), one_of("0", "7"), hex, hex});
    const Expr pair =
        b_.sequence({one_of("dD", "dD"), one_of("8aA", "9bB"), hex, hex, b_.bytes("\\u"),
                     one_of("dD", "dD"), one_of("cC", "fF"), hex, hex});
    const Expr number = b_.sequence({b_.bytes("u"), b_.choice({not_d, low_d, pair})});
    letters.push_back(number);
    return b_.choice({raw, b_.sequence({b_.bytes("\\"), b_.choice(std::move(letters))})});
  });
}

Expr JsonParts::string(int64_t at_least, int64_t at_most) {
  if (at_least > 0 || at_most >= 0) {
    return quoted(b_.repeat(string_character(), at_least, at_most));
  }
  return shared("string", [&] { return quoted(b_.repeat(string_character(), 0, -1)); });
}

Expr JsonParts::character(const CharacterSet& set) {
  std::vector<Expr> parts;
  const CharacterSet raw = set.without(escaped_);
  if (!raw.empty()) parts.push_back(b_.characters(raw));
  for (const auto& [low, high] : escaped_.ranges()) {
    for (char32_t c = low; c <= high; ++c) {
      if (!set.contains(c)) continue;
      std::string one;
      utf8_append(&one, c);
      std::string escaped;
      append_json_escaped(&escaped, one);
      parts.push_back(b_.bytes(spelled(escaped)));
    }
  }
  return b_.choice(std::move(parts));
}

// A walk down the tree of the names that leaves it somewhere, or stops where no name does.
Expr JsonParts::other_key(const std::vector<std::string>& names) {
  const CharacterSet plain = escaped_.complement();
  const Expr anything = shared("plain key", [&] { return b_.repeat(b_.characters(plain), 0, -1); });
  const std::function<Expr(std::vector<std::u32string>, size_t)> away =
      [&](const std::vector<std::u32string>& near, size_t n) {
        std::map<char32_t, std::vector<std::u32string>> next;
        bool ends = true;
        std::vector<CharacterSet::Range> taken;
        for (const std::u32string& name : near) {
          if (name.size() == n) {
            ends = false;
          } else {
            next[name[n]].push_back(name);
            taken.emplace_back(name[n], name[n]);
          }
        }
        std::vector<Expr> parts = {
            b_.sequence({b_.characters(plain.without(CharacterSet(std::move(taken)))), anything})};
        if (ends) parts.push_back(b_.empty());
        for (const auto& [c, names_of_c] : next) {
          if (!plain.contains(c)) continue;
          parts.push_back(
              b_.sequence({b_.characters(CharacterSet({{c, c}})), away(names_of_c, n + 1)}));
        }
        return b_.choice(std::move(parts));
      };
  std::vector<std::u32string> wide;
  for (const std::string& name : names) wide.push_back(utf8_characters(name));
  return b_.sequence({quoted(names.empty() ? anything : away(wide, 0)), b_.bytes(":"), space()});
}

Expr JsonParts::any_value(int depth) {
  return shared("value " + std::to_string(depth), [&] {
    return b_.choice({string(0, -1), any_but_string(depth)});
  });
}

Expr JsonParts::any_but_string(int depth) {
  return shared("no string " + std::to_string(depth), [&] {
    std::vector<Expr> parts = {shared("number", [&] { return add_numbers(b_); }), b_.bytes("true"),
                               b_.bytes("false"), b_.bytes("null")};
    if (depth > 0) {
      parts.push_back(any_object(depth));
      parts.push_back(brackets(listed(any_value(depth - 1))));
    }
    return b_.choice(std::move(parts));
  });
}

Expr JsonParts::any_object(int depth) {
  return shared("object " + std::to_string(depth), [&] {
    const Expr name = b_.sequence({string(0, -1), b_.bytes(":"), space()});
    return braces(listed(b_.sequence({name, any_value(depth - 1)})));
  });
}

}  // namespace fathom
