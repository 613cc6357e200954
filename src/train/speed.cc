#include "train/speed.h"

#include <chrono>
#include <cstdio>
#include <filesystem>

#include "train/trainer.h"

namespace fathom::train {

namespace {

double seconds() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

// Reading a value waits for the device.
void settle(Trainer& trainer) { trainer.params().master()[0].item<float>(); }

Recipe one_length(const Recipe& recipe, double length, bool late) {
  Recipe one = recipe;
  one.lengths = {length};
  one.length_until = {1.0};
  one.steps = 1000;
  one.log_every = 1000;
  one.eval_every = 0;
  one.dense_steps = 0;
  one.simulate_from = late ? 0.0 : 2.0;
  one.pool_from = late ? 0.0 : 2.0;
  return one;
}

}  // namespace

Result<void> speed_probe(const Recipe& recipe, const SpeedOptions& options) {
  for (const double length : recipe.lengths) {
    for (const bool late : {false, true}) {
      FATHOM_ASSIGN_OR_RETURN(Dataset data, Dataset::open(options.data));
      std::filesystem::remove(options.out + "/checkpoint.bin");
      FATHOM_ASSIGN_OR_RETURN(const auto trainer,
                              Trainer::create(one_length(recipe, length, late), std::move(data),
                                              options.out, options.device, options.types));
      trainer->one_step();
      settle(*trainer);
      const double begin = seconds();
      for (int i = 0; i < options.steps; ++i) {
        trainer->one_step();
      }
      settle(*trainer);
      const double each = (seconds() - begin) / options.steps;
      std::printf("T %5.0f  %-16s  %8.1f ms a step  %9.0f tokens/s\n", length,
                  late ? "pool + formats" : "top-k + KL", 1e3 * each,
                  static_cast<double>(recipe.batch_tokens) / each);
      std::fflush(stdout);
    }
  }
  return {};
}

}  // namespace fathom::train
