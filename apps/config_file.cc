#include "apps/config_file.h"

#include <toml++/toml.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <map>
#include <set>

#include "apps/input.h"
#include "apps/usage.h"
#include "apps/words.h"
#include "text/quote.h"

namespace fathom {
namespace {

constexpr uint64_t kMaxBytes = 1 << 20;

struct Setting {
  std::string key;
  const toml::node* node = nullptr;
  CLI::Option* option = nullptr;
};
using Settings = std::map<std::string, Setting>;  // by name of the option

Error at_node(const std::string& file, const toml::node& node, const std::string& message) {
  return invalid(file + ": line " + std::to_string(node.source().begin.line) + ": " + message);
}

// The option that a key names; nullptr: none that a file may set.
CLI::Option* option_of(const CLI::App& verb, const std::string& key) {
  if (key.empty() || key == "help" || key == "help-all" || key == "config") return nullptr;
  return const_cast<CLI::App&>(verb).get_option_no_throw((key.size() == 1 ? "-" : "--") + key);
}

const CLI::App* verb_named(const CLI::App& root, std::string_view name) {
  for (const CLI::App* verb : root.get_subcommands(std::function<bool(const CLI::App*)>())) {
    if (verb->get_name() == name) return verb;
  }
  return nullptr;
}

// A value as the command line would have it; false: there is no such form.
bool word_of(const toml::node& node, std::string& word) {
  if (const auto* text = node.as_string()) {
    word = text->get();
  } else if (const auto* integer = node.as_integer()) {
    word = std::to_string(integer->get());
  } else if (const auto* number = node.as_floating_point()) {
    char digits[32];
    word.assign(digits, std::to_chars(digits, digits + sizeof(digits), number->get()).ptr);
  } else {
    return false;
  }
  return true;
}

bool words_of(const toml::node& node, std::vector<std::string>& words) {
  const toml::array* list = node.as_array();
  if (list == nullptr) return word_of(node, words.emplace_back());
  for (const toml::node& element : *list) {
    if (!word_of(element, words.emplace_back())) return false;
  }
  return !words.empty();
}

// The value of a setting as the command line would have it, none for a switch that is off.
Result<std::vector<std::string>> words_for(const std::string& file, const Setting& setting) {
  const std::string& key = setting.key;
  const toml::node& node = *setting.node;
  std::vector<std::string> words;
  if (setting.option->get_expected_max() == 0) {  // a switch
    const auto* on = node.as_boolean();
    if (on == nullptr) return at_node(file, node, key + ": wanted true or false");
    if (on->get()) words.push_back(setting.option->get_flag_value(key, "true"));
    return words;
  }
  if (!words_of(node, words)) {
    return at_node(file, node, key + ": wanted a string, a number or a list of them");
  }
  for (const std::string& word : words) {
    const std::string fault = list_fault(*setting.option, word);
    if (!fault.empty()) return at_node(file, node, key + ": " + fault);
  }
  if (static_cast<int>(words.size()) > setting.option->get_items_expected_max()) {
    return at_node(file, node, key + ": wanted one value, found " + std::to_string(words.size()));
  }
  return words;
}

// What CLI11 has against a value of the file.
template <typename Use>
Result<void> tried(const std::string& file, const Setting& setting, Use use) {
  try {
    use(*setting.option);
  } catch (const CLI::ParseError& error) {
    return at_node(file, *setting.node, in_plain_words(error.what()));
  }
  return {};
}

void set_results(CLI::Option& option, const std::vector<std::string>& words) {
  option.clear();
  for (const std::string& word : words) option.add_result(word);
}

// Looks at a value as if it were used; the option keeps the one that it has.
Result<void> check(const std::string& file, const Setting& setting) {
  FATHOM_ASSIGN_OR_RETURN(const std::vector<std::string> words, words_for(file, setting));
  const std::vector<std::string> kept = setting.option->results();
  set_results(*setting.option, words);
  Result<void> sound =
      tried(file, setting, [](const CLI::Option& option) { option.reduced_results(); });
  set_results(*setting.option, kept);
  return sound;
}

// Keys of a table that are options of `verb`; with `sections`, tables in it are left to the caller.
Result<void> collect(const std::string& file, const toml::table& table, const CLI::App& verb,
                     bool sections, Settings& settings) {
  std::set<const CLI::Option*> here;  // "n" and "max-tokens" are one
  for (const auto& [key, node] : table) {
    if (sections && node.is_table()) continue;
    const std::string name(key.str());
    CLI::Option* option = option_of(verb, name);
    if (option == nullptr) {
      return at_node(file, node, "wanted a flag of " + verb.get_name() + ", found " + quote(name));
    }
    if (!here.insert(option).second) {
      return at_node(file, node, name + ": wanted " + option->get_name() + " once, found it twice");
    }
    const Setting setting = {name, &node, option};
    FATHOM_RETURN_IF_ERROR(check(file, setting));
    settings[option->get_name()] = setting;
  }
  return {};
}

// Sections of other verbs, and values that others win over, are looked through as well: a slip in
// them is found here and now.
Result<Settings> settings_of(const std::string& file, const toml::table& table,
                             const CLI::App& verb) {
  Settings settings;
  FATHOM_RETURN_IF_ERROR(collect(file, table, verb, true, settings));
  Settings own;
  for (const auto& [key, node] : table) {
    if (!node.is_table()) continue;
    const CLI::App* owner = verb_named(*verb.get_parent(), key.str());
    if (owner == nullptr) {
      return at_node(file, node, "wanted a section named as a verb, found " + quote(key.str()));
    }
    Settings others;
    FATHOM_RETURN_IF_ERROR(
        collect(file, *node.as_table(), *owner, false, owner == &verb ? own : others));
  }
  // A key of the section wins over one at the top that says the same or excludes it.
  for (const auto& [name, setting] : own) {
    for (const CLI::Option* other : setting.option->get_excludes()) {
      settings.erase(other->get_name());
    }
    settings[name] = setting;
  }
  return settings;
}

Result<void> give(const std::string& file, const Setting& setting) {
  FATHOM_ASSIGN_OR_RETURN(const std::vector<std::string> words, words_for(file, setting));
  if (words.empty()) return {};
  set_results(*setting.option, words);
  return tried(file, setting, [](CLI::Option& option) { option.run_callback(); });
}

Result<void> apply_text(const std::string& file, const std::string& text, CLI::App& verb) {
  const toml::parse_result parsed = toml::parse(text, file);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return invalid(file + ": line " + std::to_string(error.source().begin.line) +
                   ": wanted TOML, found: " + std::string(error.description()));
  }
  FATHOM_ASSIGN_OR_RETURN(const Settings settings, settings_of(file, parsed.table(), verb));
  std::set<const CLI::Option*> named;  // by the command line, which wins
  for (const CLI::Option* option : verb.get_options()) {
    if (option->count() == 0) continue;
    named.insert(option);
    for (const CLI::Option* other : option->get_excludes()) named.insert(other);
  }
  for (const auto& [name, setting] : settings) {
    if (!named.contains(setting.option)) FATHOM_RETURN_IF_ERROR(give(file, setting));
  }
  return {};
}

}  // namespace

FileOptions::FileOptions(CLI::App& verb) : verb_(&verb) {
  if (verb.get_prefix_command()) return;
  verb.add_option("--config", "Read options from a TOML file, keys named as the flags")
      ->type_name("FILE");
  for (CLI::Option* option : verb.get_options()) {
    for (CLI::Option* needed : option->get_needs()) {
      needs_.emplace_back(option, needed);
      option->remove_needs(needed);
    }
    if (!option->get_required()) continue;
    required_.push_back(option);
    option->required(false);
  }
}

Result<TypedOptions> FileOptions::apply() const {
  TypedOptions typed;
  for (const CLI::Option* option : verb_->get_options()) {
    if (option->count() > 0) typed.insert(option);
  }
  const CLI::Option* flag = verb_->get_option_no_throw("--config");
  if (flag != nullptr && flag->count() > 0) {
    const std::string file = flag->as<std::string>();
    FATHOM_ASSIGN_OR_RETURN(const std::string text, read_text(file, kMaxBytes));
    FATHOM_RETURN_IF_ERROR(apply_text(file, text, *verb_));
  }
  const std::string both = excluded();
  if (!both.empty()) return invalid(both);
  FATHOM_RETURN_IF_ERROR(require(typed));
  return typed;
}

std::string FileOptions::excluded() const {
  for (const CLI::Option* option : verb_->get_options()) {
    if (option->count() == 0) continue;
    for (const CLI::Option* other : option->get_excludes()) {
      if (other->count() == 0) continue;
      return "wanted one of " + option->get_name() + " and " + other->get_name() + ", found both";
    }
  }
  return {};
}

Result<void> FileOptions::require(const TypedOptions& typed) const {
  for (const auto& [option, needed] : needs_) {
    if (!typed.contains(option) || needed->count() > 0) continue;
    return invalid("wanted " + option->get_name() + " with " + needed->get_name() +
                   ", without which it has no effect, found it alone");
  }
  for (const CLI::Option* option : required_) {
    if (option->count() > 0) continue;
    return invalid(option->get_name() +
                   ": wanted a value on the command line or in the file of --config, found none");
  }
  return {};
}

}  // namespace fathom
