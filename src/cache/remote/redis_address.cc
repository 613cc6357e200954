#include "cache/remote/redis_address.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

namespace fathom {
namespace {

constexpr std::string_view kScheme = "redis://";
constexpr int kPortMax = 65535;
constexpr int kDatabaseMax = 1 << 20;

Error wanted(const std::string& what) {
  return invalid("wanted redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], found " + what);
}

std::optional<int> number(std::string_view text, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  const bool plain = !text.empty() && (text.size() == 1 || text.front() != '0') &&
                     std::ranges::all_of(text, [](char c) { return '0' <= c && c <= '9'; });
  if (!whole || !plain || value > most) return std::nullopt;
  return value;
}

std::optional<std::string> unescaped(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      plain += text[i];
      continue;
    }
    unsigned byte = 0;
    if (i + 2 >= text.size()) return std::nullopt;
    const char* digits = text.data() + i + 1;
    if (std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2) return std::nullopt;
    plain += static_cast<char>(byte);
    i += 2;
  }
  return plain;
}

Result<void> read_login(std::string_view text, RedisAddress& address) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return wanted("no password before '@'");
  const auto user = unescaped(text.substr(0, colon));
  const auto password = unescaped(text.substr(colon + 1));
  if (!user || !password) return wanted("a '%' without two digits");
  if (password->empty()) return wanted("an empty password");
  address.user = *user;
  address.password = *password;
  return {};
}

bool is_host_byte(char c) {
  return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9') || c == '.' ||
         c == '-' || c == '_';
}

Result<void> read_place(std::string_view text, RedisAddress& address) {
  std::string_view port;
  bool has_port = false;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return wanted("no ']'");
    address.host = text.substr(1, end - 1);
    const std::string_view rest = text.substr(end + 1);
    has_port = rest.starts_with(':');
    if (!has_port && !rest.empty()) return wanted("more behind ']'");
    if (has_port) port = rest.substr(1);
    const bool sound = std::ranges::all_of(
        address.host, [](char c) { return is_host_byte(c) || c == ':' || c == '%'; });
    if (!sound) return wanted("no IPv6 address in brackets");
  } else {
    const size_t colon = text.find(':');
    has_port = colon != std::string_view::npos;
    address.host = text.substr(0, colon);
    if (has_port) port = text.substr(colon + 1);
    if (!std::ranges::all_of(address.host, is_host_byte)) return wanted("no name of a host");
  }
  if (address.host.empty()) return wanted("no host");
  if (!has_port) return {};
  const auto value = number(port, kPortMax);
  if (!value || *value == 0) return wanted("a port that is none from 1 to 65535");
  address.port = *value;
  return {};
}

}  // namespace

std::string RedisAddress::shown() const {
  const bool brackets = host.find(':') != std::string::npos;
  return (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port) + "/" +
         std::to_string(database);
}

Result<RedisAddress> parse_redis_url(const std::string& url) {
  if (url.empty()) return wanted("nothing");
  if (url.starts_with("rediss://")) return wanted("rediss://; TLS to it is not built");
  if (!url.starts_with(kScheme)) return wanted("another scheme");
  std::string_view rest = std::string_view(url).substr(kScheme.size());
  RedisAddress address;
  if (const size_t at = rest.rfind('@'); at != std::string_view::npos) {
    FATHOM_RETURN_IF_ERROR(read_login(rest.substr(0, at), address));
    rest = rest.substr(at + 1);
  }
  if (const size_t slash = rest.find('/'); slash != std::string_view::npos) {
    const std::string_view database = rest.substr(slash + 1);
    const auto value = number(database, kDatabaseMax);
    if (!value && !database.empty()) return wanted("a database that is no number");
    address.database = value.value_or(0);
    rest = rest.substr(0, slash);
  }
  FATHOM_RETURN_IF_ERROR(read_place(rest, address));
  return address;
}

}  // namespace fathom
