#pragma once

// The formats of JSON Schema that can be enforced, as regular expressions.

#include <string_view>

namespace fathom {

// Of "date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri";
// empty: not one of them. Email, host names, addresses and URIs are subsets: the usual forms.
std::string_view format_pattern(std::string_view format);

}  // namespace fathom
