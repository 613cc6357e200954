// tenant_lookups FOLDER LOOKUPS SEED: look-ups of tenants who share texts, at every tier, with a
// disk store in FOLDER, which is made and removed; a row of a table for each tier; status 1 where
// anything came that was computed for another tenant, or that nobody had put.
#include <charconv>
#include <cstdio>
#include <cstring>

#include "tenant_lookups.h"

int main(int argc, char** argv) {
  fathom::LookupPlan plan;
  const auto number = [&](int i, auto& value) {
    const char* end = argv[i] + std::strlen(argv[i]);
    return std::from_chars(argv[i], end, value).ptr == end;
  };
  if (argc != 4 || !number(2, plan.n_lookups) || !number(3, plan.seed)) {
    std::fputs("usage: tenant_lookups FOLDER LOOKUPS SEED\n", stderr);
    return 2;
  }
  plan.folder = argv[1];
  const fathom::LookupCounts counts = fathom::run_tenant_lookups(plan);
  bool ok = true;
  std::puts("| tier | look-ups | others had more | hits | foreign | wrong |");
  std::puts("| --- | ---: | ---: | ---: | ---: | ---: |");
  for (int64_t i = 0; i < fathom::kLookupTiers; ++i) {
    const auto& tier = counts.tiers.at(static_cast<size_t>(i));
    std::printf("| %s | %lld | %lld | %lld | %lld | %lld |\n",
                fathom::lookup_tier_name(static_cast<fathom::LookupTier>(i)),
                static_cast<long long>(tier.lookups), static_cast<long long>(tier.tempted),
                static_cast<long long>(tier.hits), static_cast<long long>(tier.foreign),
                static_cast<long long>(tier.wrong));
    ok = ok && tier.foreign == 0 && tier.wrong == 0;
  }
  return ok ? 0 : 1;
}
