#include "apps/usage.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "apps/numbers.h"

namespace fathom {
namespace {

// "-n" where that was typed, although the option is called --max-tokens.
std::string typed_name(const CLI::Option& option, const std::vector<std::string>& words) {
  for (const std::string& name : option.get_snames()) {
    for (const std::string& word : words) {
      if (word.size() > 1 && word[0] == '-' && word.substr(1, name.size()) == name) {
        return "-" + name;
      }
    }
  }
  return option.get_name();
}

// The option that was given more often than it takes values.
const CLI::Option* repeated(const CLI::App& verb) {
  for (const CLI::Option* option : verb.get_options()) {
    const int most = option->get_items_expected_max();
    if (most > 0 && static_cast<int>(option->count()) > most) return option;
  }
  return nullptr;
}

// How many letters to change, add or leave out.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

// The long name that a slip of the keyboard or two would make of this word; empty: none.
std::string nearest_name(const CLI::App& verb, std::string_view word) {
  constexpr size_t kSlips = 2;
  constexpr size_t kNameBytesMax = 64;
  std::string nearest;
  size_t least = kSlips + 1;
  if (!word.starts_with("--") || word.size() > kNameBytesMax) return nearest;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      const size_t slips = distance(word.substr(2), name);
      if (slips < least) nearest = "--" + name;
      least = std::min(least, slips);
    }
  }
  return nearest;
}

std::string unexpected(const CLI::App& verb, const std::string& word) {
  if (word.size() < 2 || word[0] != '-') {
    const bool takes_text = verb.get_option_no_throw("--prompt") != nullptr;
    return "wanted no word more, found " + shown_value(word) +
           (takes_text ? "; a text goes behind -p" : "");
  }
  const std::string name = word.substr(0, word.find('='));
  const std::string nearest = nearest_name(verb, name);
  return "unknown option " + shown_value(name) +
         (nearest.empty() ? "" : ", the nearest is " + nearest);
}

std::string in_own_words(const CLI::ParseError& error, const CLI::Option& option,
                         const std::vector<std::string>& words) {
  const std::string name = typed_name(option, words);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    return name + ": wanted a value, found none";
  }
  return in_plain_words(name + std::string(error.what()).substr(option.get_name().size()));
}

}  // namespace

std::string usage_message(const CLI::ParseError& error, CLI::App& program,
                          const std::vector<std::string>& words) {
  const auto parsed = program.get_subcommands();
  if (parsed.empty() && dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    return unknown_verb(program, words.empty() ? "nothing" : words.front());
  }
  if (parsed.empty()) return error.what();
  const CLI::App& verb = *parsed.front();
  std::string text = error.what();
  const CLI::Option* option = repeated(verb);
  if (text.find("At Most") != std::string::npos && option != nullptr) {
    return typed_name(*option, words) + ": wanted it once, found it " +
           std::to_string(option->count()) + " times";
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    if (!verb.remaining().empty()) return unexpected(verb, verb.remaining().front());
    return "wanted the verb first, found " + shown_value(words.front());
  }
  for (const CLI::Option* option : verb.get_options()) {
    if (text.starts_with(option->get_name() + ":")) return in_own_words(error, *option, words);
  }
  return text;
}

std::string in_plain_words(const std::string& complaint) {
  constexpr std::string_view kNot = " not in {";
  const size_t value = complaint.find(": ");
  const size_t list = complaint.find(kNot);
  if (value == std::string::npos || list == std::string::npos || !complaint.ends_with('}')) {
    return complaint;
  }
  std::string known;
  for (const char c : complaint.substr(list + kNot.size())) {
    if (c != '}') known += c == ',' ? ", " : std::string(1, c);
  }
  const std::string found = complaint.substr(value + 2, list - value - 2);
  return complaint.substr(0, value) + ": wanted one of " + known + ", found " +
         (found.empty() ? "nothing" : shown_value(found));
}

void refuse_empty_values(CLI::App& verb) {
  static const std::set<std::string> texts = {"--prompt", "--system", "--regex"};
  for (CLI::Option* option : verb.get_options()) {
    if (option->get_items_expected_max() == 0 || texts.contains(option->get_name())) continue;
    option->check([](const std::string& value) {
      return value.empty() ? std::string("wanted a value, found an empty one") : std::string();
    });
  }
}

std::string repeated_word(const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (std::find(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(i), words[i]) !=
        words.begin() + static_cast<std::ptrdiff_t>(i)) {
      return words[i];
    }
  }
  return {};
}

const CLI::Option* first_typed(const TypedOptions& typed,
                               const std::vector<const CLI::Option*>& options) {
  for (const CLI::Option* option : options) {
    if (typed.contains(option)) return option;
  }
  return nullptr;
}

std::string unknown_verb(const CLI::App& program, const std::string& word) {
  std::string known;
  for (const CLI::App* verb : program.get_subcommands(std::function<bool(const CLI::App*)>())) {
    known += (known.empty() ? "" : ", ") + verb->get_name();
  }
  return "verb: wanted one of " + known + ", found " + shown_value(word);
}

}  // namespace fathom
