#pragma once

// Names of stored cases (tests/golden/README.md) taken apart.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fathom {

// "L06.attn.kv" or, in a reduced case, "L06.topk_ids".
struct LayerName {
  int layer = 0;
  std::string_view what;  // behind the dot
};

std::optional<LayerName> layer_name(std::string_view name);

// The number behind `before`: ("pos33.L06.out", "pos") gives 33. Digits and then a dot.
std::optional<int64_t> number_behind(std::string_view name, std::string_view before);

// The name that the engine shows for a stored decision or value of one layer; empty for names that
// are no intermediate (gaps, residual, window_kv).
std::string shown_name(std::string_view stored);

// The stored gap that belongs to a stored decision; empty: none.
std::string gap_name(std::string_view stored);

// What a stored case is, by its file's name: which of the names it may have is known from that.
enum class CaseKind : uint8_t { kPrompt, kLengths, kDecode, kDecodeFull, kReplay };

CaseKind case_kind(std::string_view case_name, bool has_tokens);

// Whether a stored tensor is one that a case of this kind has, so that it is looked at: the names
// of tests/golden/README.md, of layers 0 to n_layers - 1.
bool is_case_name(CaseKind kind, std::string_view stored, int64_t n_layers);

// Names whose values are a quantiser's: a last-bit difference before it moves them by a whole step.
bool is_quantised(std::string_view what);

}  // namespace fathom
