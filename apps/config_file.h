#pragma once

// The options of a verb beyond what CLI11 knows of them: --config FILE.toml gives those that the
// command line does not (docs/cli.md), so that what is required or excluded is decided after both.

#include <string>
#include <utility>
#include <vector>

#include "apps/verb.h"
#include "base/result.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace fathom {

// Adds --config to a verb and takes required options, and those that need another, out of CLI11's
// hands. A verb that passes its words on has no --config.
class FileOptions {
 public:
  explicit FileOptions(CLI::App& verb);

  // Gives the options that the command line did not name the values of the file, where --config
  // named one, and then asks for what is required. Keys stand at the top or in a section [VERB],
  // which wins; an option that excludes one of the command line is passed over. Refuses a missing
  // or broken file, an unknown section, an unknown key or a bad value of any verb, also where
  // another value wins: wrong usage. So is an option of the command line without one that it needs;
  // where the file gives it, it is passed over, since a file serves many uses. Gives what the
  // command line named.
  Result<TypedOptions> apply() const;

  // The two that exclude each other, both given; empty: there are none.
  std::string excluded() const;

 private:
  Result<void> require(const TypedOptions& typed) const;

  CLI::App* verb_;
  std::vector<CLI::Option*> required_;
  std::vector<std::pair<CLI::Option*, CLI::Option*>> needs_;  // the second is needed by the first
};

}  // namespace fathom
