#pragma once

// The spellings that the chat format gives a meaning (spec/chat.md 1). A spelling is a special
// token only where the renderer wrote it itself; in anybody else's text it is plain text.

#include <string_view>

namespace fathom {

inline constexpr std::string_view kBosText = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kEosText = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kSystemText = "<｜System｜>";
inline constexpr std::string_view kUserText = "<｜User｜>";
inline constexpr std::string_view kAssistantText = "<｜Assistant｜>";
inline constexpr std::string_view kReminderText = "<｜latest_reminder｜>";
inline constexpr std::string_view kImageText = "<｜deepseek_image｜>";
inline constexpr std::string_view kInfillBeginText = "<｜fim▁begin｜>";
inline constexpr std::string_view kInfillHoleText = "<｜fim▁hole｜>";
inline constexpr std::string_view kInfillEndText = "<｜fim▁end｜>";
inline constexpr std::string_view kThinkOpenText = "<think>";
inline constexpr std::string_view kThinkCloseText = "</think>";
inline constexpr std::string_view kDsmlText = "｜DSML｜";

// The names inside DSML tags. The space is part of the name in V4.1; V4 had none.
inline constexpr std::string_view kCallsTag = " calls";
inline constexpr std::string_view kInvokeTag = " invoke";
inline constexpr std::string_view kParameterTag = " parameter";

}  // namespace fathom
