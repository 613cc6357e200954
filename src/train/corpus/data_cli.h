#pragma once

// The jobs of `fathom train data` and `fathom train tokenizer`, which need no libtorch.

#include <string>
#include <vector>

namespace fathom::train {

// args: "corpus", "tokenizer" or "shards", then --name value pairs, or --help (cli.md, verb train).
// Progress and failures go to standard error, one JSON object with the figures to standard output.
// The exit status: 0 done, 1 failed, 2 wrong usage.
int run_data_job(const std::vector<std::string>& args);

}  // namespace fathom::train
