// Goal: nothing that was computed for one tenant reaches another, at any tier. Method: 8,000
// random look-ups of texts that all tenants share, each hit judged by its bytes; and the same with
// one salt for all, where others' blocks must be found, or the test could not fail. A million are
// made by the program tenant_lookups (bench/results/tenant-lookups.md).
#include "tenant_lookups.h"

#include "base/folder_testing.h"

namespace fathom {
namespace {

class TenantLookupsTest : public FolderTest {};

TEST_F(TenantLookupsTest, NoTierBringsABlockOfAnotherTenant) {
  const LookupCounts counts =
      run_tenant_lookups({.folder = folder(), .n_lookups = 8000, .seed = 20261201});
  for (int64_t i = 0; i < kLookupTiers; ++i) {
    const LookupCounts::Tier& tier = counts.tiers.at(static_cast<size_t>(i));
    const char* name = lookup_tier_name(static_cast<LookupTier>(i));
    EXPECT_EQ(tier.foreign, 0) << name;
    EXPECT_EQ(tier.wrong, 0) << name;
    // That there was something to find, and something to keep away from.
    EXPECT_GT(tier.lookups, 1600) << name;
    EXPECT_GT(tier.tempted, 400) << name;
    EXPECT_GT(tier.hits, 80) << name;
  }
  EXPECT_GT(counts.restarts, 5);
}

TEST_F(TenantLookupsTest, WithoutSaltsEachTierWould) {
  const LookupCounts counts = run_tenant_lookups(
      {.folder = folder(), .n_lookups = 2000, .seed = 20261201, .one_salt = true});
  for (int64_t i = 0; i < kLookupTiers; ++i) {
    const LookupCounts::Tier& tier = counts.tiers.at(static_cast<size_t>(i));
    EXPECT_GT(tier.foreign, 40) << lookup_tier_name(static_cast<LookupTier>(i));
  }
}

}  // namespace
}  // namespace fathom
