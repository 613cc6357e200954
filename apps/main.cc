#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "apps/common.h"
#include "apps/config_file.h"
#include "apps/verb.h"
#include "ops/backends.h"

namespace {

std::string version_text() {
  std::string text = std::string("fathom ") + FATHOM_VERSION + "\ncommit " + FATHOM_COMMIT +
                     "\ncompiler " + __VERSION__ + "\nbackends";
  for (const std::string& name : fathom::available_backends()) text += "\n  " + name;
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("fathom: an engine for the DeepSeek-V4.1-Flash architecture", "fathom");
  app.set_version_flag("--version", version_text());
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "Show the options of all verbs");

  std::vector<std::unique_ptr<fathom::Verb>> verbs;
  for (auto* make :
       {fathom::make_run, fathom::make_chat, fathom::make_tokenize, fathom::make_prompt,
        fathom::make_inspect, fathom::make_synth, fathom::make_check, fathom::make_eval,
        fathom::make_bench, fathom::make_train}) {
    verbs.push_back(make());
    CLI::App* verb = app.add_subcommand(verbs.back()->name(), verbs.back()->help());
    verb->get_formatter()->column_width(34);
    verbs.back()->add_options(*verb);
    fathom::add_config_flag(*verb);
  }
  // CLI11 would say that a verb is required.
  const bool known = argc < 2 || argv[1][0] == '-' ||
                     std::any_of(verbs.begin(), verbs.end(), [&](const auto& verb) {
                       return std::string_view(verb->name()) == argv[1];
                     });
  if (!known) {
    std::fprintf(stderr, "fathom: usage: verb: wanted one of fathom --help, found %s\n", argv[1]);
    return 2;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {  // --help, --version
    return fathom::finish(app.exit(done));
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "fathom: usage: %s; see fathom --help\n", error.what());
    return 2;
  }
  const auto configured = fathom::apply_config_file(*app.get_subcommands().front());
  if (!configured) {
    std::fprintf(stderr, "fathom: usage: --config: %s\n", configured.error().message.c_str());
    return 2;
  }
  for (const auto& verb : verbs) {
    if (app.got_subcommand(verb->name())) return fathom::finish(verb->run());
  }
  return 2;
}
