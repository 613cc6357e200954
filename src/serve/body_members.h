#pragma once

// Members of a body that one route of the model has in force and another has not, in one table that
// all routes read. A member that is not in force where it was sent is refused by its name, or,
// where the protocol's published server passes it over, named in the answer (`fathom.passed_over`).
// What asks for nothing (null, false, an empty list, the usual value) is taken everywhere.
//
// Members that are in no row and no protocol knows have no effect.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "serve/body_fields.h"

namespace fathom {

enum class Protocol : uint8_t { kChat, kMessages, kResponses, kCompletions };

// A set of protocols, one bit each.
enum class Protocols : uint8_t {};
constexpr bool has(Protocols set, Protocol one) {
  return (static_cast<unsigned>(set) >> static_cast<unsigned>(one) & 1U) != 0;
}

struct MemberRule {
  const char* name = "";
  Protocols in_force = {};
  Protocols passed_over = {};  // refused by the rest
  const char* usual = "null";  // JSON of the value that asks for nothing
  // What to send in its place, by protocol; null: there is nothing.
  std::array<const char*, 4> instead = {};
};

std::span<const MemberRule> member_rules();

// Refuses the first member that this protocol has not in force; the names of those it passes over.
std::vector<std::string> check_members(BodyFields& fields, Protocol protocol);

}  // namespace fathom
