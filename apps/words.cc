#include "apps/words.h"

#include <CLI/CLI.hpp>

#include "apps/numbers.h"

namespace fathom {
namespace {

// "--name" of "--name=VALUE", "-x" of "-x=VALUE" and of "-xVALUE"; empty: no option.
std::string option_name(const std::string& word) {
  if (word.size() < 2 || word[0] != '-') return {};
  return word[1] == '-' ? word.substr(0, word.find('=')) : word.substr(0, 2);
}

}  // namespace

std::string list_fault(const CLI::Option& option, const std::string& value) {
  const char delimiter = option.get_delimiter();
  if (delimiter == '\0' || value.empty()) return {};  // an empty word is refused like any other
  const std::string framed = delimiter + value + delimiter;
  if (framed.find(std::string(2, delimiter)) == std::string::npos) return {};
  return "wanted a list with commas between, found an empty element in " + shown_value(value);
}

Result<std::vector<std::string>> separate_values(const CLI::App& verb,
                                                 const std::vector<std::string>& words) {
  if (verb.get_prefix_command()) return words;
  std::vector<std::string> separate;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {
      separate.insert(separate.end(), words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
      return separate;
    }
    const std::string name = option_name(word);
    const CLI::Option* option =
        name.empty() ? nullptr : const_cast<CLI::App&>(verb).get_option_no_throw(name);
    const bool has_value =
        option != nullptr && word.size() > name.size() && word[name.size()] == '=';
    if (has_value && option->get_items_expected_max() == 0) {
      return invalid(name + ": wanted no value, found " +
                     shown_value(word.substr(name.size() + 1)));
    }
    if (option == nullptr || option->get_items_expected_max() == 0) {
      separate.push_back(word);
      continue;
    }
    const bool is_whole = word == name;  // what follows is its value, whatever that looks like
    separate.push_back(has_value ? name : word);
    if (has_value) separate.push_back(word.substr(name.size() + 1));
    if (is_whole && i + 1 < words.size()) separate.push_back(words[++i]);
    const std::string fault = list_fault(*option, separate.back());
    if (!fault.empty()) return invalid(name + ": " + fault);
  }
  return separate;
}

}  // namespace fathom
