#include "apps/config_file.h"

#include <CLI/CLI.hpp>
#include <sstream>

#include "base/file.h"

namespace fathom {
namespace {

constexpr uint64_t kMaxBytes = 1 << 20;
constexpr const char* kFlag = "--config";

Result<void> apply(const std::string& file, const CLI::ConfigItem& item, CLI::App& verb) {
  const char* dashes = item.name.size() == 1 ? "-" : "--";
  CLI::Option* option = verb.get_option_no_throw(dashes + item.name);
  if (option == nullptr || item.name == "help" || item.name == "config") {
    return invalid(file + ": wanted a flag of " + verb.get_name() + ", found " + item.name);
  }
  if (option->count() > 0) return {};  // the command line wins
  try {
    if (option->get_expected_max() == 0) {  // a switch
      const std::string value = CLI::ConfigBase().to_flag(item);
      option->add_result(option->get_flag_value(item.name, value));
    } else {
      option->add_result(item.inputs);
    }
    option->run_callback();
  } catch (const CLI::ParseError& error) {
    return invalid(file + ": " + item.name + ": " + error.what());
  }
  return {};
}

// What CLI11 reads in the text, or what it has against it.
Result<std::vector<CLI::ConfigItem>> items_of(const std::string& file, const std::string& text) {
  std::istringstream stream(text);
  try {
    return CLI::ConfigTOML().from_config(stream);
  } catch (const CLI::Error& error) {
    return invalid(file + ": " + error.what());
  }
}

}  // namespace

void add_config_flag(CLI::App& verb) {
  verb.add_option(kFlag, "Read options from a TOML file, keys named as the flags")
      ->type_name("FILE");
}

Result<void> apply_config_file(CLI::App& verb) {
  const CLI::Option* flag = verb.get_option(kFlag);
  if (flag->count() == 0) return {};
  const std::string file = flag->as<std::string>();
  FATHOM_ASSIGN_OR_RETURN(const std::string text, read_file(file, kMaxBytes));
  FATHOM_ASSIGN_OR_RETURN(const std::vector<CLI::ConfigItem> items, items_of(file, text));
  for (const CLI::ConfigItem& item : items) {
    // Begin and end of a section are items of their own.
    if (item.name == "++" || item.name == "--") continue;
    if (item.parents.empty() || item.parents == std::vector<std::string>{verb.get_name()}) {
      FATHOM_RETURN_IF_ERROR(apply(file, item, verb));
    }
  }
  return {};
}

}  // namespace fathom
