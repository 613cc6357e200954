#include "apps/serve_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "apps/numbers.h"

namespace fathom {

void TransportFlags::add_to(CLI::App& app) {
  app.add_option("--connections", connections,
                 "Connections at once; 32 more have a place for /health and /ready alone")
      ->check(whole_number(1, int64_t{1} << 20))
      ->capture_default_str();
  app.add_option("--body-bytes", body_bytes, "Bytes of a request's body")
      ->transform(size_number(1024, int64_t{1} << 30))
      ->capture_default_str();
  app.add_option("--idle-s", idle_s, "Seconds that a connection is kept without a request")
      ->check(whole_number(1, 24 * 3600))
      ->capture_default_str();
}

void TransportFlags::apply(ServerOptions& options) const {
  options.max_connections = connections;
  options.body_bytes_max = body_bytes;
  options.idle_ms = idle_s * 1000;
}

void NewKeyFlags::add_to(CLI::App& app) {
  option_ = app.add_option("--new-key", name_,
                           "Print a key on standard error and its table for the file of --keys on "
                           "standard output, and serve nothing")
                ->type_name("NAME");
  own_.push_back(app.add_option("--role", role_, "Of the new key: user, metrics or admin")
                     ->check([](const std::string& name) {
                       return key_role(name)
                                  ? std::string()
                                  : "wanted user, metrics or admin, found " + shown_value(name);
                     })
                     ->needs(option_)
                     ->capture_default_str());
  const auto limit = [&](const char* name, int64_t* value, const char* help) {
    own_.push_back(app.add_option(name, *value, help)
                       ->check(whole_number(0, kQuotaMax))
                       ->needs(option_)
                       ->capture_default_str());
  };
  limit("--requests-per-minute", &limits_.requests_per_minute, "Of the new key, 0: no limit");
  limit("--tokens-per-minute", &limits_.tokens_per_minute, "Of the new key, 0: no limit");
  limit("--concurrent-requests", &limits_.concurrent_requests, "Of the new key, 0: no limit");
}

Result<NewKey> NewKeyFlags::make() const { return make_key(name_, *key_role(role_), limits_); }

std::string NewKeyFlags::misuse(const CLI::App& app, const TypedOptions& typed) const {
  if (!given()) return "";
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    const bool own = option == option_ || std::ranges::find(own_, option) != own_.end();
    if (!typed.contains(option) || own || name == "--json" || name == "--config") continue;
    return name + ": wanted it without --new-key, which serves nothing, found both";
  }
  const Result<NewKey> made = make();
  return made ? std::string() : "--new-key: " + made.error().message;
}

Result<void> NewKeyFlags::print(const OutputFlags& output) const {
  FATHOM_ASSIGN_OR_RETURN(const NewKey made, make());
  if (output.json) {
    print_json({{"key", made.key}, {"table", made.table}});
  } else {
    std::fprintf(stderr, "%s\n", made.key.c_str());
    std::printf("%s", made.table.c_str());
  }
  return {};
}

}  // namespace fathom
