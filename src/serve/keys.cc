#include "serve/keys.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "text/quote.h"

namespace fathom {
namespace {

constexpr std::array<const char*, 3> kRoles = {"user", "metrics", "admin"};
constexpr int kPriorityMax = 100;
constexpr double kWeightMax = 1000;
constexpr size_t kKeyBytesMin = 16;

Sha256Digest digest_of(std::string_view text) { return sha256(std::as_bytes(std::span(text))); }

// Of n secret bytes, 32 at most.
std::string random_hex(size_t n) {
  const auto bytes = secret_bytes();
  return to_hex(std::span(bytes).first(n));
}

void add_framed(Sha256& hash, std::string_view part) {
  const uint64_t n = part.size();
  hash.update(std::as_bytes(std::span(&n, 1)));
  hash.update(std::as_bytes(std::span(part)));
}

bool is_name(const std::string& text) {
  const auto good = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '_' || c == '-';
  };
  return !text.empty() && text.size() <= 64 && std::ranges::all_of(text, good);
}

Result<void> validate_name(const std::string& name) {
  if (is_name(name)) return {};
  return invalid("name: wanted 1 to 64 letters, digits, '.', '_' or '-', found " + quote(name));
}

Result<void> validate_limit(const char* what, int64_t value) {
  if (value >= 0 && value <= kQuotaMax) return {};
  return invalid(std::string(what) + ": wanted 0 (none) to " + std::to_string(kQuotaMax) +
                 ", found " + std::to_string(value));
}

Result<void> validate_limits(const QuotaLimits& limits) {
  FATHOM_RETURN_IF_ERROR(validate_limit("requests_per_minute", limits.requests_per_minute));
  FATHOM_RETURN_IF_ERROR(validate_limit("tokens_per_minute", limits.tokens_per_minute));
  return validate_limit("concurrent_requests", limits.concurrent_requests);
}

Result<void> validate_tenant(const Tenant& tenant) {
  FATHOM_RETURN_IF_ERROR(validate_name(tenant.name));
  if (tenant.salt.size() < 16 || tenant.salt.size() > 128) {
    return invalid("salt: wanted 16 to 128 bytes, found " + std::to_string(tenant.salt.size()));
  }
  if (!(tenant.weight >= 1 / kWeightMax && tenant.weight <= kWeightMax)) {
    return invalid("weight: wanted a number from 0.001 to 1000");
  }
  if (std::abs(tenant.priority) > kPriorityMax) {
    return invalid("priority: wanted -100 to 100, found " + std::to_string(tenant.priority));
  }
  return validate_limits(tenant.quota);
}

}  // namespace

std::optional<KeyRole> key_role(std::string_view name) {
  const auto* const found = std::ranges::find(kRoles, name);
  if (found == kRoles.end()) return std::nullopt;
  return static_cast<KeyRole>(found - kRoles.begin());
}

const char* key_role_name(KeyRole role) { return kRoles[static_cast<size_t>(role)]; }

std::string tenant_text(const Tenant& tenant) {
  return tenant.name.empty() ? "" : " tenant=" + tenant.name;
}

Result<void> KeyRing::add(Tenant tenant) {
  FATHOM_RETURN_IF_ERROR(validate_tenant(tenant));
  for (const Tenant& other : tenants_) {
    const char* same = other.name == tenant.name   ? "name"
                       : other.salt == tenant.salt ? "salt"
                       : other.key == tenant.key   ? "sha256"
                                                   : nullptr;
    if (same == nullptr) continue;
    return invalid(std::string(same) + ": wanted one of its own for " + tenant.name +
                   ", found that of " + other.name);
  }
  tenant.id = static_cast<TenantId>(tenants_.size() + 1);  // 0: the one without a key
  tenants_.push_back(std::move(tenant));
  return {};
}

const Tenant* KeyRing::find(std::string_view key) const {
  const Sha256Digest digest = digest_of(key);
  const Tenant* found = nullptr;
  for (const Tenant& tenant : tenants_) {
    if (equal_in_constant_time(digest, tenant.key)) found = &tenant;
  }
  return found;
}

const Tenant* KeyRing::named(std::string_view name) const {
  const auto found = std::ranges::find(tenants_, name, &Tenant::name);
  return found == tenants_.end() ? nullptr : &*found;
}

std::string cache_salt(const Tenant& tenant) {
  Sha256 hash;
  add_framed(hash, "fathom tenant");
  add_framed(hash, tenant.name);
  add_framed(hash, tenant.salt);
  const Sha256Digest digest = hash.finish();
  return {digest.begin(), digest.end()};
}

Result<NewKey> make_key(const std::string& name, KeyRole role, const QuotaLimits& limits) {
  FATHOM_RETURN_IF_ERROR(validate_name(name));
  FATHOM_RETURN_IF_ERROR(validate_limits(limits));
  NewKey made = {.key = "sk-fathom-" + random_hex(24)};
  made.table = "[[key]]\nname = \"" + name + "\"\nsha256 = \"" + to_hex(digest_of(made.key)) +
               "\"\nsalt = \"" + random_hex(16) + "\"\n";
  if (role != KeyRole::kUser) {
    made.table += "role = \"" + std::string(key_role_name(role)) + "\"\n";
  }
  const auto add = [&](const char* member, int64_t limit) {
    if (limit != 0) made.table += std::string(member) + " = " + std::to_string(limit) + "\n";
  };
  add("requests_per_minute", limits.requests_per_minute);
  add("tokens_per_minute", limits.tokens_per_minute);
  add("concurrent_requests", limits.concurrent_requests);
  return made;
}

Result<Tenant> only_tenant(std::string_view key) {
  if (key.size() < kKeyBytesMin) {
    return invalid("wanted a key of at least 16 bytes, found " + std::to_string(key.size()));
  }
  Tenant tenant = {.name = "default", .key = digest_of(key), .role = KeyRole::kAdmin};
  Sha256 hash;  // the same after a restart, and not what stands for the key elsewhere
  add_framed(hash, "fathom salt of the only tenant");
  add_framed(hash, key);
  tenant.salt = to_hex(hash.finish());
  return tenant;
}

}  // namespace fathom
