// fathom-train-data: the data jobs as a program of their own.

#include <cstdio>
#include <string>
#include <vector>

#include "train/corpus/data_cli.h"

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (auto done = fathom::train::run_data_job(args); !done) {
    std::fprintf(stderr, "fathom: train: %s\n", done.error().message.c_str());
    return 1;
  }
  return 0;
}
