#pragma once

// --config FILE.toml: the options of a verb by the names of their flags (docs/cli.md).

#include "base/result.h"

namespace CLI {
class App;
}

namespace fathom {

// Adds --config to a verb.
void add_config_flag(CLI::App& verb);

// Gives the verb's options that the command line did not name the values of the file, where
// --config named one. Keys stand at the top or in a section [VERB]; sections of other verbs are
// passed over. Refuses a missing file, an unknown key and a bad value: wrong usage.
Result<void> apply_config_file(CLI::App& verb);

}  // namespace fathom
