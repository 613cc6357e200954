#pragma once

// The jobs of `fathom train data` and `fathom train tokenizer`, which need no libtorch.

#include <string>
#include <vector>

#include "base/result.h"

namespace fathom::train {

// args: "corpus", "tokenizer" or "shards", then --name value pairs (cli.md, verb train). Progress
// goes to standard error, one JSON object with the figures to standard output.
Result<void> run_data_job(const std::vector<std::string>& args);

}  // namespace fathom::train
