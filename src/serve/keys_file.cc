#include <toml++/toml.h>

#include "serve/keys.h"
#include "text/quote.h"

namespace fathom {
namespace {

// One member of a table [[key]] on its way into the tenant.
struct Member {
  const std::string name;
  const toml::node& node;
};

Error wanted(const Member& member, const char* what) {
  return invalid(member.name + ": wanted " + what);
}

Result<void> read_number(const Member& member, int64_t* into) {
  const auto* value = member.node.as_integer();
  if (value == nullptr) return wanted(member, "a whole number");
  *into = value->get();
  return {};
}

Result<void> read_digest(const Member& member, Sha256Digest* into) {
  const std::string text = member.node.value_or(std::string());
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  bool good = member.node.is_string() && text.size() == 2 * into->size();
  for (size_t i = 0; good && i < into->size(); ++i) {
    const int high = digit(text[2 * i]);
    const int low = digit(text[2 * i + 1]);
    good = high >= 0 && low >= 0;
    (*into)[i] = static_cast<uint8_t>(high * 16 + low);
  }
  if (!good) return wanted(member, "64 hexadecimal digits in lower case");
  return {};
}

Result<void> read_role(const Member& member, KeyRole* into) {
  const std::optional<KeyRole> role = key_role(member.node.value_or(std::string()));
  if (!role) return wanted(member, "\"user\", \"metrics\" or \"admin\"");
  *into = *role;
  return {};
}

Result<void> read_text_member(const Member& member, std::string* into) {
  if (!member.node.is_string()) return wanted(member, "a string");
  *into = member.node.value_or(std::string());
  return {};
}

Result<void> read_weight(const Member& member, double* into) {
  if (!member.node.is_number()) return wanted(member, "a number");
  *into = member.node.value_or(0.0);
  return {};
}

Result<void> read_priority(const Member& member, int* into) {
  int64_t value = 0;
  FATHOM_RETURN_IF_ERROR(read_number(member, &value));
  *into = static_cast<int>(std::clamp<int64_t>(value, INT32_MIN, INT32_MAX));
  return {};
}

Result<void> read_member(const Member& member, Tenant* tenant) {
  const std::string& name = member.name;
  QuotaLimits& quota = tenant->quota;
  if (name == "name") return read_text_member(member, &tenant->name);
  if (name == "salt") return read_text_member(member, &tenant->salt);
  if (name == "sha256") return read_digest(member, &tenant->key);
  if (name == "role") return read_role(member, &tenant->role);
  if (name == "weight") return read_weight(member, &tenant->weight);
  if (name == "priority") return read_priority(member, &tenant->priority);
  if (name == "requests_per_minute") return read_number(member, &quota.requests_per_minute);
  if (name == "tokens_per_minute") return read_number(member, &quota.tokens_per_minute);
  if (name == "concurrent_requests") return read_number(member, &quota.concurrent_requests);
  return invalid("wanted a member of a key, found " + quote(name));
}

Result<void> read_table(const toml::table& table, KeyRing* ring) {
  Tenant tenant;
  for (const auto& [key, node] : table) {
    FATHOM_RETURN_IF_ERROR(read_member({std::string(key.str()), node}, &tenant));
  }
  for (const char* needed : {"name", "sha256", "salt"}) {
    if (!table.contains(needed)) return invalid(std::string(needed) + ": wanted it, found none");
  }
  return ring->add(std::move(tenant));
}

std::string at(const std::string& where, const toml::source_region& source) {
  return where + ": line " + std::to_string(source.begin.line) + ": ";
}

}  // namespace

Result<KeyRing> read_keys(const std::string& text, const std::string& where) {
  const toml::parse_result parsed = toml::parse(text, where);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return invalid(at(where, error.source()) +
                   "wanted TOML, found: " + std::string(error.description()));
  }
  KeyRing ring;
  for (const auto& [key, node] : parsed.table()) {
    const toml::array* tables = node.as_array();
    if (key.str() != "key" || tables == nullptr || !tables->is_homogeneous<toml::table>()) {
      return invalid(at(where, node.source()) + "wanted tables [[key]], found " +
                     quote(std::string(key.str())));
    }
    for (const toml::node& table : *tables) {
      const Result<void> read = read_table(*table.as_table(), &ring);
      if (!read) return invalid(at(where, table.source()) + read.error().message);
    }
  }
  if (ring.empty()) return invalid(where + ": wanted a table [[key]], found none");
  return ring;
}

}  // namespace fathom
