#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <system_error>

#include "apps/common.h"
#include "apps/config_file.h"
#include "apps/input.h"
#include "apps/signals.h"
#include "apps/usage.h"
#include "apps/verb.h"
#include "apps/version.h"
#include "apps/words.h"

namespace {

struct KnownVerb {
  std::unique_ptr<fathom::Verb> verb;
  CLI::App* options = nullptr;
  fathom::FileOptions file;
};

std::vector<KnownVerb> add_verbs(CLI::App& program) {
  std::vector<KnownVerb> verbs;
  for (auto* make :
       {fathom::make_run, fathom::make_chat, fathom::make_tokenize, fathom::make_prompt,
        fathom::make_inspect, fathom::make_synth, fathom::make_check, fathom::make_eval,
        fathom::make_bench, fathom::make_train, fathom::make_serve, fathom::make_store}) {
    std::unique_ptr<fathom::Verb> verb = make();
    CLI::App* options = program.add_subcommand(verb->name(), verb->help());
    options->get_formatter()->column_width(34);
    verb->add_options(*options);
    fathom::FileOptions file(*options);
    fathom::refuse_empty_values(*options);
    verbs.push_back({std::move(verb), options, std::move(file)});
  }
  return verbs;
}

fathom::Result<std::vector<std::string>> separate_behind_verb(
    const std::vector<KnownVerb>& verbs, const std::vector<std::string>& words) {
  for (const KnownVerb& verb : verbs) {
    if (words.empty() || words.front() != verb.verb->name()) continue;
    FATHOM_ASSIGN_OR_RETURN(
        std::vector<std::string> separate,
        fathom::separate_values(*verb.options, {words.begin() + 1, words.end()}));
    separate.insert(separate.begin(), words.front());
    return separate;
  }
  return words;
}

int run_verb(int argc, char** argv) {
  CLI::App program("fathom: an engine for the DeepSeek-V4.1-Flash architecture", "fathom");
  program.set_version_flag("--version", fathom::version_text());
  program.require_subcommand(1);
  program.footer(
      "Words of the script ./fathom in the project's root, beside these\n"
      "  setup [--cuda] [--train]        installs and builds what is needed\n"
      "  test [--all]                    builds and runs the tests\n"
      "`fathom VERB --help` explains a verb's options.");
  program.set_help_all_flag("--help-all", "Show the options of all verbs");
  const std::vector<KnownVerb> verbs = add_verbs(program);
  const std::vector<std::string> words(argv + 1, argv + std::max(1, argc));
  // CLI11 would say that a verb is required.
  const bool known = words.empty() || words.front().starts_with('-') ||
                     std::any_of(verbs.begin(), verbs.end(), [&](const KnownVerb& verb) {
                       return words.front() == verb.verb->name();
                     });
  if (!known) return fathom::wrong_usage(fathom::unknown_verb(program, words.front()), "");
  const std::string verb_name =
      words.empty() || words.front().starts_with('-') ? std::string() : words.front();
  const fathom::Result<std::vector<std::string>> separate = separate_behind_verb(verbs, words);
  if (!separate) return fathom::wrong_usage(separate.error().message, verb_name);
  try {
    program.parse(std::vector<std::string>(separate->rbegin(), separate->rend()));
  } catch (const CLI::Success& done) {  // --help, --version
    return fathom::finish(program.exit(done));
  } catch (const CLI::ExcludesError& error) {
    for (const KnownVerb& verb : verbs) {
      if (const std::string both = verb.file.excluded(); !both.empty()) {
        return fathom::wrong_usage(both, verb_name);
      }
    }
    return fathom::wrong_usage(error.what(), verb_name);
  } catch (const CLI::ParseError& error) {
    return fathom::wrong_usage(fathom::usage_message(error, program, *separate), verb_name);
  }
  for (const KnownVerb& verb : verbs) {
    if (!verb.options->parsed()) continue;
    const fathom::Result<fathom::TypedOptions> typed = verb.file.apply();
    if (!typed) return fathom::wrong_usage(typed.error().message, verb_name);
    const std::string wrong = verb.verb->misuse(*typed);
    if (!wrong.empty()) return fathom::wrong_usage(wrong, verb_name);
    const std::string hint = verb.verb->hint(*typed);
    if (!hint.empty()) fathom::note(hint);
    return fathom::finish(verb.verb->run());
  }
  return 2;
}

}  // namespace

// What the standard library raises is want of memory, in all but bugs: one line, not an abort.
int main(int argc, char** argv) {
  fathom::hold_standard_streams();
  fathom::report_memory_faults();
  try {
    return run_verb(argc, argv);
  } catch (const std::bad_alloc&) {
    return fathom::fail(fathom::exhausted("memory: wanted more than the system gives"));
  } catch (const std::system_error& error) {  // of files and threads
    return fathom::fail(fathom::io_error(error.what()));
  } catch (const std::exception& error) {
    return fathom::fail(fathom::invalid(std::string("internal error: ") + error.what()));
  }
}
