#pragma once

#include <string>

namespace fathom {

// A line of the server's log on standard error, behind the time of day (UTC). Any thread.
void log_line(const std::string& line);

}  // namespace fathom
