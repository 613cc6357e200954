#pragma once

// Generated text becomes reasoning, content and tool calls again: the tolerant streaming form of
// spec/chat.md section 7. The strict form, a checker for data, is strict_output.h.
//
// Total: any bytes give a result and none is an error; what the markup cannot explain is skipped or
// kept as text by the rules of the page. Incremental: the result is a function of the byte stream
// alone, however it is cut. Work per byte is constant. If the pieces are cut between characters, so
// are the deltas.
//
// Parameter keys are JSON-escaped like values. The library 0.2.0 garbles keys with spaces and
// passes backslashes and control characters through raw; fathom does neither.
//
// Thread rule: one parser, one thread.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_request.h"

namespace fathom {

// Where the model's text begins.
enum class OutputStart : uint8_t {
  kContent,             // an answer without reasoning; leading line feeds are dropped
  kContentContinued,    // after the content of a prefix, in thinking mode; they are kept
  kReasoning,           // a new turn in thinking mode; leading line feeds are dropped
  kReasoningContinued,  // after the reasoning of a prefix; they are kept
  kCalls,               // inside the calls block that the prompt opened
};

struct OutputSettings {
  OutputStart start = OutputStart::kContent;
  bool tools = false;             // without it the markup of calls is content
  bool json_mode = false;         // only a JSON document is content; text around it becomes spaces
  std::vector<std::string> stop;  // matched in content only; no empty ones
};

// The settings for the answer to a request's prompt.
OutputSettings output_settings(const ChatRequest& request);

struct OutputDelta {
  enum class Kind : uint8_t { kReasoning, kContent, kCallStart, kArguments };
  Kind kind = Kind::kContent;
  std::string text;  // kCallStart: the whole name
  size_t call = 0;   // kCallStart, kArguments: index of the call
};

// Why the engine stopped, and what a client is told.
enum class FinishReason : uint8_t { kStop, kLength, kContentFilter, kToolCalls };

const char* finish_reason_name(FinishReason reason);  // "stop", "length", ...

class OutputParser {
 public:
  explicit OutputParser(const OutputSettings& settings);
  ~OutputParser();
  OutputParser(OutputParser&&) noexcept;
  OutputParser& operator=(OutputParser&&) noexcept;

  // What the next bytes make certain; neighbouring deltas of one kind are joined. Not after
  // finish().
  std::vector<OutputDelta> feed(std::string_view bytes);

  // The end of the stream: what was held back because a marker might have followed. At most once.
  std::vector<OutputDelta> finish();

  // A stop string was found or the calls block was closed: nothing more will come out, the engine
  // may stop.
  bool done() const;

  size_t call_count() const;

  // The next byte belongs to the reasoning.
  bool in_reasoning() const;
  // Bytes are held back, because a marker may be among them.
  bool holds() const;
  // The stop string that was found.
  const std::optional<std::string>& stopped_by() const;

  // A stop string that was found makes it kStop whatever the engine says. kStop with at least one
  // call becomes kToolCalls; the others stay as they are.
  FinishReason finish_reason(FinishReason engine) const;

 private:
  class Machine;
  std::unique_ptr<Machine> machine_;
};

struct ParsedCall {
  std::string name;
  std::string arguments;  // JSON text as far as it came; not valid JSON if the call was cut
};

struct ParsedOutput {
  std::optional<std::string> reasoning;  // nothing unless the text began in reasoning
  std::string content;
  std::vector<ParsedCall> tool_calls;
  FinishReason finish_reason = FinishReason::kStop;
};

// Adds deltas up, in the order in which they came.
void accumulate(ParsedOutput* output, const std::vector<OutputDelta>& deltas);

// A whole text at once.
ParsedOutput parse_output(std::string_view text, const OutputSettings& settings,
                          FinishReason engine = FinishReason::kStop);

}  // namespace fathom
