#include "eval/case_names.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

TEST(CaseNames, TheKindComesFromTheFilesName) {
  EXPECT_EQ(case_kind("short_fp32score", true), CaseKind::kPrompt);
  EXPECT_EQ(case_kind("decode_fp32score", true), CaseKind::kDecode);
  EXPECT_EQ(case_kind("decode_full", true), CaseKind::kDecodeFull);
  EXPECT_EQ(case_kind("prefill", false), CaseKind::kLengths);
  EXPECT_EQ(case_kind("replay", false), CaseKind::kReplay);
}

TEST(CaseNames, OnlyWhatACaseOfTheKindIsComparedWithIsKnown) {
  const auto known = [](CaseKind kind, std::string_view name) {
    return is_case_name(kind, name, 12);
  };
  EXPECT_TRUE(known(CaseKind::kPrompt, "tokens"));
  EXPECT_TRUE(known(CaseKind::kPrompt, "L11.attn.kv"));
  EXPECT_TRUE(known(CaseKind::kPrompt, "token_types"));
  EXPECT_TRUE(known(CaseKind::kLengths, "n007.L06.topk_ids"));
  EXPECT_TRUE(known(CaseKind::kDecodeFull, "pos33.L06.attn.topk_ids"));
  EXPECT_TRUE(known(CaseKind::kReplay, "n033.L06.window_kv"));
  for (const std::string_view name :
       {"", "zztokens", "L12.attn.kv", "L.attn.kv", "L06.attn.kw", "L06.", "l06.out",
        "n007.L06.out", "pos33.L06.out", "L06.window_kv", "logits_exact", "L06.out.x"}) {
    EXPECT_FALSE(known(CaseKind::kPrompt, name)) << name;
  }
  EXPECT_FALSE(known(CaseKind::kLengths, "L06.topk_ids"));
  EXPECT_FALSE(known(CaseKind::kLengths, "n007.token_types"));
  EXPECT_FALSE(known(CaseKind::kDecodeFull, "logits"));
  EXPECT_FALSE(known(CaseKind::kDecodeFull, "pos33.residual"));
  EXPECT_FALSE(known(CaseKind::kDecode, "positions"));
}

}  // namespace
}  // namespace fathom
