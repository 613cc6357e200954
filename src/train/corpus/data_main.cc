// fathom-train-data: the data jobs as a program of their own.

#include <string>
#include <vector>

#include "train/corpus/data_cli.h"

int main(int argc, char** argv) { return fathom::train::run_data_job({argv + 1, argv + argc}); }
