#include "apps/usage.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <set>

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

std::string in_own_words(const CLI::ParseError& error, const CLI::Option& option,
                         const std::vector<std::string>& words) {
  const std::string name = typed_name(option, words);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    return name + ": wanted a value, found none";
  }
  return name + std::string(error.what()).substr(option.get_name().size());
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
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !verb.remaining().empty()) {
    return "wanted no word more, found " + shown_value(verb.remaining().front());
  }
  for (const CLI::Option* option : verb.get_options()) {
    if (text.starts_with(option->get_name() + ":")) return in_own_words(error, *option, words);
  }
  return text;
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
