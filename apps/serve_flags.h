#pragma once

// Options of `fathom serve` that say what the transport takes, and those that go with --new-key.

#include <string>
#include <vector>

#include "apps/common.h"
#include "apps/verb.h"
#include "serve/keys.h"
#include "serve/server.h"

namespace fathom {

// What an operator may set of the limits in docs/design/operate.md.
struct TransportFlags {
  void add_to(CLI::App& app);
  void apply(ServerOptions& options) const;

  int64_t connections = 4096;
  int64_t body_bytes = int64_t{48} << 20;
  int64_t idle_s = 60;
};

// --new-key NAME: a key is made, and nothing served.
class NewKeyFlags {
 public:
  void add_to(CLI::App& app);
  bool given() const { return !name_.empty(); }
  CLI::Option* option() const { return option_; }
  // One line where it is given and options stand beside it that are not its own; empty: nothing is
  // wrong.
  std::string misuse(const CLI::App& app, const TypedOptions& typed) const;
  // The secret is shown apart from what is kept: `>> keys.toml` is the way to a file of keys.
  Result<void> print(const OutputFlags& output) const;

 private:
  Result<NewKey> make() const;

  std::string name_;
  std::string role_ = key_role_name(KeyRole::kUser);
  QuotaLimits limits_;
  CLI::Option* option_ = nullptr;
  std::vector<CLI::Option*> own_;
};

}  // namespace fathom
