#pragma once

// Rotation frequencies of a layer. Source: spec/backbone.md 2.5 (YaRN in the reciprocal form).

#include <vector>

#include "model/config.h"

namespace fathom {

// [qk_rope_head_dim / 2]. Plain: base rope_theta. With yarn: base compress_rope_theta, blended.
std::vector<float> rope_frequencies(const TextConfig& text, bool yarn);

}  // namespace fathom
