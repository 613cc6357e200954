#pragma once

// What is said in the template dialogues; synth_text_dialogue.h renders it.

#include <vector>

#include "train/corpus/recall_task.h"
#include "train/corpus/synth_text_dialogue.h"
#include "train/corpus/synth_text_rng.h"

namespace fathom::train {

Conversation draw_conversation(SynthRng& rng, RecallSplit split,
                               const std::vector<Definition>& definitions);

}  // namespace fathom::train
