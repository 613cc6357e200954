// Goal: `fathom serve` says where it listens, ends well at ctrl-C, and refuses an address that is
// none. Method: the built program in a terminal. What it serves: tests/serve.
#include <gtest/gtest.h>

#include "program.h"

namespace fathom {
namespace {

TEST(ServeVerb, SaysWhereItListensAndEndsAtCtrlC) {
  bool stopped = false;
  const Outcome outcome = run_in_terminal(
      {"serve", "--listen", "127.0.0.1:0", "--sequences", "2", "--context", "256", "--quiet"},
      [&](const std::string& shown) -> std::string {
        if (stopped || shown.find("fathom-34m at http://127.0.0.1:") == std::string::npos)
          return "";
        stopped = true;
        return "\x03";
      });
  EXPECT_TRUE(stopped) << outcome.out;
  EXPECT_EQ(outcome.status, 0) << outcome.out;
}

TEST(ServeVerb, RefusesAnAddressThatIsNone) {
  const Outcome no_port = run_program({.args = {"serve", "--listen", "127.0.0.1"}});
  EXPECT_EQ(no_port.status, 2);
  const std::string wanted =
      "fathom: usage: --listen: wanted HOST:PORT with a port of 0 to 65535, found ";
  EXPECT_EQ(no_port.err, wanted + "127.0.0.1; see fathom serve --help\n");
  const Outcome high_port = run_program({.args = {"serve", "--listen", "127.0.0.1:65536"}});
  EXPECT_EQ(high_port.err, wanted + "127.0.0.1:65536; see fathom serve --help\n");
  const Outcome no_host =
      run_program({.args = {"serve", "--listen", "nowhere:0", "--context", "256", "--quiet"}});
  EXPECT_EQ(no_host.status, 1);
  EXPECT_EQ(no_host.err, "fathom: listen: wanted an IP address, found nowhere\n");
}

}  // namespace
}  // namespace fathom
