#include "text/output_parser.h"

#include <array>
#include <utility>

#include "base/check.h"
#include "text/json_text.h"
#include "text/markers.h"
#include "text/stream_pattern.h"

namespace fathom {
namespace {

constexpr std::string_view kTagOpen = "<｜DSML｜";
constexpr std::string_view kTagClose = "</｜DSML｜";

// Positions of the machine. A "fresh" one drops line feeds until something else comes.
enum class State : uint8_t {
  kFreshReasoning,
  kReasoning,
  kFreshContent,
  kContent,
  kJson,
  kAfterJson,
  kCalls,
  kName,
  kFirstParameter,  // inside an invoke, no parameter yet
  kNextParameter,
  kKey,
  kKind,  // after the key: looking for the string flag
  kStringValue,
  kRawValue,
  kFinished,
};
constexpr size_t kStates = static_cast<size_t>(State::kFinished) + 1;

// What a found marker does; the bytes of the marker itself are never output as they are.
enum class Action : uint8_t {
  kNothing,
  kContent,    // output the text of the rule as content
  kArguments,  // the same as arguments
  kStop,
  kEndName,
  kEndCall,
};

struct Rule {
  StreamPattern pattern;
  State next;
  Action action = Action::kNothing;
  std::string text;
};

// What becomes of bytes that no marker claims.
enum class Rest : uint8_t { kReasoning, kContent, kSpace, kName, kEscaped, kRaw, kNothing };

Rest rest_of(State state, bool json_mode) {
  switch (state) {
    case State::kFreshReasoning:
    case State::kReasoning:
      return Rest::kReasoning;
    case State::kFreshContent:
    case State::kContent:
      return json_mode ? Rest::kSpace : Rest::kContent;
    case State::kJson:
      return Rest::kContent;
    case State::kAfterJson:
      return Rest::kSpace;
    case State::kName:
      return Rest::kName;
    case State::kKey:
    case State::kStringValue:
      return Rest::kEscaped;
    case State::kRawValue:
      return Rest::kRaw;
    default:
      return Rest::kNothing;
  }
}

// The rules of every state; where two markers end at the same byte, the earlier rule wins.
class RuleBook {
 public:
  explicit RuleBook(const OutputSettings& settings) : settings_(settings) {
    for (const State state : {State::kFreshReasoning, State::kReasoning}) {
      calls_open(state);
      add(state, kThinkCloseText, State::kFreshContent).pattern =
          StreamPattern(kThinkCloseText, true);
    }
    for (const State state : {State::kFreshContent, State::kContent}) {
      settings.json_mode ? json_open(state) : stops(state);
      calls_open(state);
      add(state, kThinkCloseText, State::kContent);  // a stray one is dropped
    }
    stops(State::kJson);
    add(State::kJson, "\n```", State::kAfterJson);
    calls_open(State::kAfterJson);
    call_rules();
  }

  std::vector<Rule>& of(State state) { return rules_[static_cast<size_t>(state)]; }

 private:
  Rule& add(State state, std::string_view marker, State next, Action action = Action::kNothing,
            std::string text = {}) {
    of(state).push_back({StreamPattern(marker), next, action, std::move(text)});
    return of(state).back();
  }

  void stops(State state) {
    for (const std::string& stop : settings_.stop)
      add(state, stop, State::kFinished, Action::kStop, stop);
  }

  void calls_open(State state) {
    if (!settings_.tools) return;
    add(state, kTagOpen, State::kCalls).pattern = StreamPattern(kTagOpen, true);
  }

  void json_open(State state) {
    add(state, "```json\n", State::kJson);
    add(state, "```\n", State::kJson);
    add(state, "{", State::kJson, Action::kContent, "{");
    add(state, "[", State::kJson, Action::kContent, "[");
  }

  // V4 wrote the tag names without the space; "invoke name" and "parameter name" fit both.
  void call_rules() {
    add(State::kCalls, "invoke name=\"", State::kName);
    add(State::kCalls, "</｜DSML｜ calls>", State::kFinished);
    add(State::kCalls, "</｜DSML｜tool_calls>", State::kFinished);
    add(State::kName, "\"", State::kFirstParameter, Action::kEndName);
    for (const State state : {State::kFirstParameter, State::kNextParameter}) {
      const bool first = state == State::kFirstParameter;
      add(state, "parameter name=\"", State::kKey, Action::kArguments, first ? "{\"" : ", \"");
      add(state, kTagClose, State::kCalls, Action::kEndCall, first ? "{}" : "}");
    }
    add(State::kKey, "\"", State::kKind, Action::kArguments, "\": ");
    add(State::kKind, "true\">", State::kStringValue, Action::kArguments, "\"");
    add(State::kKind, "false\">", State::kRawValue);
    add(State::kStringValue, kTagClose, State::kNextParameter, Action::kArguments, "\"");
    add(State::kRawValue, kTagClose, State::kNextParameter);
  }

  const OutputSettings& settings_;
  std::array<std::vector<Rule>, kStates> rules_;
};

State first_state(OutputStart start) {
  switch (start) {
    case OutputStart::kContent:
      return State::kFreshContent;
    case OutputStart::kContentContinued:
      return State::kContent;
    case OutputStart::kReasoning:
      return State::kFreshReasoning;
    case OutputStart::kReasoningContinued:
      return State::kReasoning;
    case OutputStart::kCalls:
      return State::kCalls;
  }
  return State::kFreshContent;
}

}  // namespace

class OutputParser::Machine {
 public:
  explicit Machine(const OutputSettings& settings)
      : json_mode_(settings.json_mode), rules_(settings) {
    enter(first_state(settings.start));
  }

  void feed(char byte) {
    if (state_ == State::kFinished) return;
    held_.push_back(byte);
    Rule* found = nullptr;
    size_t pending = 0;
    for (Rule& rule : rules_.of(state_)) {
      const bool complete = rule.pattern.feed(byte);
      pending = std::max(pending, rule.pattern.pending());
      if (!complete) continue;
      found = &rule;
      pending = rule.pattern.pending();
      break;
    }
    const bool drops = found == nullptr && byte == '\n' && held_.size() == 1 && at_start_ &&
                       (state_ == State::kFreshContent || state_ == State::kFreshReasoning);
    if (drops) {
      enter(state_);
      return;
    }
    at_start_ = false;
    release(held_.size() - pending);
    if (found == nullptr) return;
    apply(*found);
    enter(found->next);
  }

  void finish() {
    release(held_.size());
    FATHOM_CHECK(!finished_);
    finished_ = true;
  }

  std::vector<OutputDelta> take_deltas() { return std::exchange(deltas_, {}); }

  bool done() const { return state_ == State::kFinished; }
  const std::optional<std::string>& stopped_by() const { return stopped_by_; }
  bool in_reasoning() const {
    return state_ == State::kFreshReasoning || state_ == State::kReasoning;
  }
  bool holds() const { return !held_.empty(); }
  bool finished() const { return finished_; }
  size_t calls() const { return calls_; }

 private:
  void enter(State state) {
    state_ = state;
    held_.clear();
    at_start_ = true;
    spaced_ = false;
    for (Rule& rule : rules_.of(state)) rule.pattern.reset();
  }

  // The first `count` held bytes belong to no marker.
  void release(size_t count) {
    if (count == 0) return;
    const std::string_view bytes = std::string_view(held_).substr(0, count);
    switch (rest_of(state_, json_mode_)) {
      case Rest::kReasoning:
        put(OutputDelta::Kind::kReasoning, bytes);
        break;
      case Rest::kContent:
        put(OutputDelta::Kind::kContent, bytes);
        break;
      case Rest::kSpace:  // one for a whole stretch, so that it does not depend on the cuts
        if (!spaced_) put(OutputDelta::Kind::kContent, " ");
        spaced_ = true;
        break;
      case Rest::kName:
        name_.append(bytes);
        break;
      case Rest::kEscaped: {
        std::string escaped;
        append_json_escaped(&escaped, bytes);
        put(OutputDelta::Kind::kArguments, escaped);
        break;
      }
      case Rest::kRaw:
        put(OutputDelta::Kind::kArguments, bytes);
        break;
      case Rest::kNothing:
        break;
    }
    held_.erase(0, count);
  }

  void apply(const Rule& rule) {
    switch (rule.action) {
      case Action::kNothing:
        break;
      case Action::kStop:
        stopped_by_ = rule.text;
        break;
      case Action::kContent:
        put(OutputDelta::Kind::kContent, rule.text);
        break;
      case Action::kArguments:
      case Action::kEndCall:
        put(OutputDelta::Kind::kArguments, rule.text);
        break;
      case Action::kEndName:
        deltas_.push_back({OutputDelta::Kind::kCallStart, std::exchange(name_, {}), calls_++});
        break;
    }
  }

  void put(OutputDelta::Kind kind, std::string_view text) {
    const size_t call = kind == OutputDelta::Kind::kArguments ? calls_ - 1 : 0;
    if (!deltas_.empty() && deltas_.back().kind == kind && deltas_.back().call == call) {
      deltas_.back().text.append(text);
    } else {
      deltas_.push_back({kind, std::string(text), call});
    }
  }

  bool json_mode_;
  RuleBook rules_;
  State state_ = State::kFinished;
  std::string held_;      // the last bytes, while a marker may be among them
  bool at_start_ = true;  // nothing but dropped line feeds since the state was entered
  bool spaced_ = false;   // the space for this stretch of dropped text is out
  std::string name_;
  size_t calls_ = 0;
  std::optional<std::string> stopped_by_;  // a stop string
  bool finished_ = false;
  std::vector<OutputDelta> deltas_;
};

OutputParser::OutputParser(const OutputSettings& settings)
    : machine_(std::make_unique<Machine>(settings)) {}
OutputParser::~OutputParser() = default;
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;

std::vector<OutputDelta> OutputParser::feed(std::string_view bytes) {
  FATHOM_CHECK(!machine_->finished());
  for (const char byte : bytes) machine_->feed(byte);
  return machine_->take_deltas();
}

std::vector<OutputDelta> OutputParser::finish() {
  machine_->finish();
  return machine_->take_deltas();
}

bool OutputParser::done() const { return machine_->done(); }

size_t OutputParser::call_count() const { return machine_->calls(); }

bool OutputParser::in_reasoning() const { return machine_->in_reasoning(); }

bool OutputParser::holds() const { return machine_->holds(); }

const std::optional<std::string>& OutputParser::stopped_by() const {
  return machine_->stopped_by();
}

FinishReason OutputParser::finish_reason(FinishReason engine) const {
  if (machine_->stopped_by()) engine = FinishReason::kStop;
  return engine == FinishReason::kStop && machine_->calls() > 0 ? FinishReason::kToolCalls : engine;
}

const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kContentFilter:
      return "content_filter";
    case FinishReason::kToolCalls:
      return "tool_calls";
  }
  return "";
}

OutputSettings output_settings(const ChatRequest& request) {
  OutputSettings settings;
  settings.tools = !offered_tools(request).empty();
  settings.json_mode = request.response_format == ResponseFormat::kJsonObject;
  settings.stop = request.stop;
  const ChatMessage* prefix = continued_prefix(request);
  if (forces_tool_call(request)) {
    settings.start = OutputStart::kCalls;
  } else if (!request.thinking) {
    settings.start = OutputStart::kContent;
  } else if (prefix == nullptr) {
    settings.start = OutputStart::kReasoning;
  } else if (!content_text(*prefix).empty()) {
    settings.start = OutputStart::kContentContinued;
  } else {
    settings.start =
        prefix->reasoning.empty() ? OutputStart::kReasoning : OutputStart::kReasoningContinued;
  }
  return settings;
}

void accumulate(ParsedOutput* output, const std::vector<OutputDelta>& deltas) {
  for (const OutputDelta& delta : deltas) {
    switch (delta.kind) {
      case OutputDelta::Kind::kReasoning:
        if (!output->reasoning) output->reasoning.emplace();
        *output->reasoning += delta.text;
        break;
      case OutputDelta::Kind::kContent:
        output->content += delta.text;
        break;
      case OutputDelta::Kind::kCallStart:
        output->tool_calls.push_back({delta.text, {}});
        break;
      case OutputDelta::Kind::kArguments:
        output->tool_calls[delta.call].arguments += delta.text;
        break;
    }
  }
}

ParsedOutput parse_output(std::string_view text, const OutputSettings& settings,
                          FinishReason engine) {
  ParsedOutput output;
  if (settings.start == OutputStart::kReasoning ||
      settings.start == OutputStart::kReasoningContinued) {
    output.reasoning.emplace();
  }
  OutputParser parser(settings);
  accumulate(&output, parser.feed(text));
  accumulate(&output, parser.finish());
  output.finish_reason = parser.finish_reason(engine);
  return output;
}

}  // namespace fathom
