#pragma once

// A verb of the command line (docs/cli.md): its options, then its work.

#include <memory>
#include <vector>

namespace CLI {
class App;
}

namespace fathom {

class Verb {
 public:
  virtual ~Verb() = default;
  virtual const char* name() const = 0;
  virtual const char* help() const = 0;
  virtual void add_options(CLI::App& app) = 0;
  // Exit status: 0 done, 1 failed, 2 wrong usage. Failures were printed.
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

}  // namespace fathom
