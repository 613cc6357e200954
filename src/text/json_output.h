#pragma once

// JSON as every part of the program puts it out: answers of the server, results of verbs.

#include <string>

namespace boost::json {
class value;
}  // namespace boost::json

namespace fathom {

// On one line and without spaces. Figures stand as people write them (json_double of json_text.h).
// JSON has no infinite numbers and no bytes that are not UTF-8: null and U+FFFD stand for them.
std::string json_output(const boost::json::value& value);

}  // namespace fathom
