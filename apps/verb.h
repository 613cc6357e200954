#pragma once

// A verb of the command line (docs/cli.md): its options, then its work.

#include <memory>
#include <set>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace fathom {

// The options that the command line itself named, those of --config not among them.
using TypedOptions = std::set<const CLI::Option*>;

class Verb {
 public:
  virtual ~Verb() = default;
  virtual const char* name() const = 0;
  virtual const char* help() const = 0;
  virtual void add_options(CLI::App& app) = 0;
  // What is wrong with options of which each alone is well-formed, such as one that has no effect
  // beside the others; empty: nothing. Called before run().
  virtual std::string misuse(const TypedOptions& /*typed*/) const { return {}; }
  // What is said of options that are well-formed and change nothing; empty: nothing. Called before
  // run().
  virtual std::string hint(const TypedOptions& /*typed*/) const { return {}; }
  // Exit status: 0 done, 1 failed. Failures were printed.
  virtual int run() = 0;
};

// One each; the functions stand in the file of the verb's name.
std::unique_ptr<Verb> make_run();
std::unique_ptr<Verb> make_tokenize();
std::unique_ptr<Verb> make_check();
std::unique_ptr<Verb> make_eval();
std::unique_ptr<Verb> make_chat();
std::unique_ptr<Verb> make_prompt();
std::unique_ptr<Verb> make_inspect();
std::unique_ptr<Verb> make_synth();
std::unique_ptr<Verb> make_bench();
std::unique_ptr<Verb> make_train();
std::unique_ptr<Verb> make_serve();
std::unique_ptr<Verb> make_store();

}  // namespace fathom
