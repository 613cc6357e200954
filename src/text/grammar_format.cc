#include "text/grammar_format.h"

#include <array>
#include <utility>

namespace fathom {

// RFC 3339, 9562, 1123, 2673 and 4291. Months have their days; the 29th of February stands in leap
// years alone; no leap seconds. A duration has at least one part.
std::string_view format_pattern(std::string_view format) {
#define FATHOM_DATE                                                 \
  "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])"        \
  "|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))" \
  "|(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
#define FATHOM_TIME \
  "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define FATHOM_HOST                               \
  "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?" \
  "(?:\\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?){0,3}"
#define FATHOM_BYTE "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define FATHOM_GROUP "[0-9a-fA-F]{1,4}"
#define FATHOM_MORE(n) "(?::" FATHOM_GROUP "){0," #n "}"
  constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kPatterns = {{
      {"date", FATHOM_DATE},
      {"time", FATHOM_TIME},
      {"date-time", FATHOM_DATE "T" FATHOM_TIME},
      {"duration",
       "P(?:\\d{1,9}W|(?:\\d{1,9}Y(?:\\d{1,9}M(?:\\d{1,9}D)?)?|\\d{1,9}M(?:\\d{1,9}D)?|\\d{1,9}D)"
       "(?:T(?:\\d{1,9}H(?:\\d{1,9}M(?:\\d{1,9}S)?)?|\\d{1,9}M(?:\\d{1,9}S)?|\\d{1,9}S))?"
       "|T(?:\\d{1,9}H(?:\\d{1,9}M(?:\\d{1,9}S)?)?|\\d{1,9}M(?:\\d{1,9}S)?|\\d{1,9}S))"},
      {"email", "[a-zA-Z0-9_+-]{1,32}(?:\\.[a-zA-Z0-9_+-]{1,10}){0,2}@" FATHOM_HOST},
      {"hostname", FATHOM_HOST},
      {"ipv4", FATHOM_BYTE "(?:\\." FATHOM_BYTE "){3}"},
      {"ipv6",
       "(?:" FATHOM_GROUP ":){7}" FATHOM_GROUP "|::(?:" FATHOM_GROUP FATHOM_MORE(
           6) ")?"
              "|" FATHOM_GROUP "::(?:" FATHOM_GROUP FATHOM_MORE(
                  5) ")?"
                     "|" FATHOM_GROUP "(?::" FATHOM_GROUP "){1,2}::(?:" FATHOM_GROUP FATHOM_MORE(
                         3) ")?"
                            "|" FATHOM_GROUP "(?::" FATHOM_GROUP
                            "){3,4}::(?:" FATHOM_GROUP FATHOM_MORE(1) ")?"},
      {"uuid", "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
      {"uri", "https?://" FATHOM_HOST "(?::[1-9]\\d{0,3})?(?:/[a-zA-Z0-9._~-]{0,64}){0,16}"
              "(?:\\?[a-zA-Z0-9._~=&-]{0,256})?(?:#[a-zA-Z0-9._~-]{0,64})?"},
  }};
  for (const auto& [name, pattern] : kPatterns) {
    if (name == format) return pattern;
  }
  return {};
}

}  // namespace fathom
