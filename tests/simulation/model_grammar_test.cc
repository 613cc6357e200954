// Goal: answers that are bound to a form have it on the trained model, and are, token for token,
// those of a request alone, whatever is batched, forked, parked or dropped; where they cannot end,
// the model is not allowed to end them. Method: the engine with few slots and blocks and an urgent
// request again and again, against the plain loop of generate().
#include <gtest/gtest.h>

#include <map>

#include "engine/engine.h"
#include "engine/generate.h"
#include "engine/load.h"
#include "engine/model_executor.h"
#include "ops/backends.h"
#include "text/grammar_regex.h"
#include "text/grammar_schema.h"
#include "text/grammar_tools.h"
#include "text/json_text.h"
#include "text/output_parser.h"
#include "text/utf8.h"

namespace fathom {
namespace {

const char kSchema[] =
    R"({"type":"object","properties":{"kind":{"enum":["loop","call"]},"n":{"type":"integer",)"
    R"("minimum":-9,"maximum":99},"tags":{"type":"array","items":{"type":"string","maxLength":4},)"
    R"("maxItems":2}},"required":["kind","n"]})";

class ModelGrammar : public testing::Test {
 protected:
  void SetUp() override {
    auto loaded = load_model(std::string(FATHOM_SOURCE_DIR) + "/models/fathom-34m", {});
    ASSERT_TRUE(loaded) << loaded.error().message;
    loaded_ = std::move(*loaded);
    ops_ = std::move(*make_backend({}));
    tokens_ = std::make_unique<TokenTrie>(*loaded_.tokenizer);
    eos_ = static_cast<int32_t>(loaded_.model->config().eos_token_id);
  }

  std::unique_ptr<Runner> runner(int64_t n_sequences, int64_t n_blocks) {
    return std::move(*Runner::make(*loaded_.model, *ops_,
                                   {.schedule = Schedule::kExact,
                                    .context = 320,
                                    .n_sequences = n_sequences,
                                    .n_blocks = n_blocks,
                                    .max_rows = 160}));
  }

  Request request(const std::string& text, uint64_t seed, std::optional<Grammar> grammar) const {
    Request request = {.tenant = static_cast<TenantId>(1), .max_tokens = 90, .stop_ids = {eos_}};
    const auto ids = *loaded_.tokenizer->encode(text, AddedTokens::kIgnore);
    request.prompt = {static_cast<int32_t>(loaded_.model->config().bos_token_id)};
    request.prompt.insert(request.prompt.end(), ids.begin(), ids.end());
    request.sampling = {.temperature = 1, .seed = seed};
    request.grammar = std::move(grammar);
    return request;
  }

  Generated alone(const Request& request, uint64_t seed) {
    const auto r = runner(1, 0);
    Sequence sequence = *r->open();
    EXPECT_TRUE(r->append(sequence, request.prompt));
    GenerateOptions options = {.max_tokens = request.max_tokens,
                               .sampling = request.sampling,
                               .stop_ids = request.stop_ids};
    options.sampling.seed = seed;
    std::optional<TokenMatcher> matcher;
    if (request.grammar) options.form = &matcher.emplace(*request.grammar, *tokens_);
    auto made = generate(*r, sequence, &*loaded_.tokenizer, options, {});
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }

  std::string text_of(const std::vector<int32_t>& ids) const {
    return *loaded_.tokenizer->decode_bytes(ids);
  }

  LoadedModel loaded_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<TokenTrie> tokens_;
  int32_t eos_ = 0;
};

struct Answer {
  std::vector<int32_t> ids;
  EndReason finish = EndReason::kNone;
};

void expect_formed(const std::string& text) {
  const auto value = parse_json(text);
  ASSERT_TRUE(value) << text;
  const std::string kind = *value->find("kind")->as_string();
  EXPECT_TRUE(kind == "loop" || kind == "call") << text;
  const int64_t n = *value->find("n")->as_int64();
  EXPECT_TRUE(n >= -9 && n <= 99) << text;
  const Json* tags = value->find("tags");
  if (tags != nullptr) {
    EXPECT_LE(tags->as_array()->size(), 2U) << text;
  }
  EXPECT_EQ(value->as_object()->size(), tags != nullptr ? 3U : 2U) << text;
}

TEST_F(ModelGrammar, FormedAnswersAreThoseComputedAlone) {
  const Grammar schema = *schema_grammar(*parse_json(kSchema), "s");
  const Grammar list = *regex_grammar("([a-z]{1,9}, ){3}end", "r");
  const auto r = runner(2, 8);
  ModelExecutor executor(*r, loaded_.tokenizer->vocab_size());
  EngineOptions options;
  options.tokens = tokens_.get();
  options.grammars_kept = 1;
  options.scheduler.min_run_us = 0;
  Engine engine(executor, options);
  std::map<RequestId, Request> sent;
  const auto send = [&](Request request) {
    const auto id = engine.submit(request);
    ASSERT_TRUE(id) << id.error().message;
    sent.emplace(*id, std::move(request));
  };
  send(request("{ a json object:", 1, schema));
  Request forked = request("words:", 3, list);
  forked.n_choices = 2;
  send(forked);
  send(request("free text", 5, std::nullopt));
  std::map<std::pair<RequestId, int64_t>, Answer> answers;
  int64_t n_ticks = 0;
  const auto take = [&] {
    for (const Output& output : engine.take_outputs(100)) {
      Answer& answer = answers[{output.request, output.choice}];
      for (const SampledToken& token : output.tokens) answer.ids.push_back(token.id);
      answer.finish = output.finish;
      EXPECT_EQ(output.error, "");
    }
  };
  while (engine.tick(n_ticks * 1000)) {
    if (n_ticks == 4 || n_ticks == 12) {
      Request urgent = request("{ urgent:", 7 + static_cast<uint64_t>(n_ticks), schema);
      urgent.priority = 9;
      send(urgent);
    }
    engine.check();
    take();
    ASSERT_LT(++n_ticks, 2000);
  }
  take();
  EXPECT_GT(engine.counters().n_parked + engine.counters().n_dropped, 0);
  EXPECT_EQ(answers.size(), sent.size() + 1);
  int n_whole = 0;
  for (const auto& [key, answer] : answers) {
    const Request& request = sent.at(key.first);
    const Generated want =
        alone(request, request.sampling.seed + static_cast<uint64_t>(key.second));
    EXPECT_EQ(answer.ids, want.ids);
    EXPECT_EQ(answer.finish == EndReason::kStop, want.stop_reason == StopReason::kStop);
    if (!request.grammar || answer.finish != EndReason::kStop) continue;
    ++n_whole;
    if (request.grammar->digest == schema.digest) expect_formed(text_of(answer.ids));
    if (request.grammar->digest == list.digest) {
      EXPECT_TRUE(text_of(answer.ids).ends_with(", end"));
    }
  }
  EXPECT_GE(n_whole, 3);
}

// Reasoning is free up to its end, which alone the form follows.
TEST_F(ModelGrammar, TheFormBeginsBehindTheEndOfThinking) {
  const Grammar grammar = *regex_grammar("[0-9]{3}", "r", {.thinking = true});
  Request thinking = request("so", 2, grammar);
  thinking.max_tokens = 30;
  const Generated free = alone(thinking, 2);
  EXPECT_EQ(free.ids.size(), 30U);  // this model goes on; it may not end before the form was said
  TokenMatcher matcher(grammar, *tokens_);
  GrammarCursor cursor;
  ASSERT_TRUE(cursor.begin(matcher, std::vector<int32_t>{eos_}));
  const auto close = loaded_.tokenizer->added_token("</think>");
  ASSERT_TRUE(close);
  EXPECT_TRUE(mask_has(cursor.mask(), *close));
  EXPECT_FALSE(mask_has(cursor.mask(), eos_));
  const auto ids = *loaded_.tokenizer->encode("because", AddedTokens::kIgnore);
  for (const TokenId id : ids) EXPECT_TRUE(*cursor.accept(id));
  EXPECT_TRUE(*cursor.accept(*close));
  ASSERT_TRUE(cursor.find_mask(std::vector<int32_t>{eos_}));
  for (TokenId id = 0; id < tokens_->n_tokens(); ++id) {
    const bool digits =
        !tokens_->is_added(id) && !tokens_->bytes(id).empty() &&
        tokens_->bytes(id).find_first_not_of("0123456789\n") == std::string_view::npos;
    if (!digits) {
      EXPECT_FALSE(mask_has(cursor.mask(), id)) << tokens_->bytes(id);
    }
  }
}

// Bounded, so that most answers end within their tokens.
const char kTools[] =
    R"({"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":)"
    R"({"name":"find","strict":true,"parameters":{"type":"object","properties":{)"
    R"("word":{"type":"string","maxLength":6},"kind":{"anyOf":[{"type":"string","enum":)"
    R"(["｜DSML｜","b"]},{"type":"integer","const":3}]},)"
    R"("at":{"type":"object","properties":{"line":{"type":"integer","minimum":1,"maximum":99},)"
    R"("tag":{"type":["string","null"],"maxLength":4}}}}}}},{"type":"function","function":)"
    R"({"name":"stop","strict":true}}]})";

void expect_call(const ParsedCall& call) {
  const auto arguments = parse_json(call.arguments);
  ASSERT_TRUE(arguments) << call.arguments;
  if (call.name == "stop") {
    EXPECT_TRUE(arguments->as_object()->empty());
    return;
  }
  ASSERT_EQ(call.name, "find");
  ASSERT_EQ(arguments->as_object()->size(), 3U) << call.arguments;
  EXPECT_LE(utf8_characters(*arguments->find("word")->as_string()).size(), 6U);
  const std::string kind = json_text(*arguments->find("kind"));
  EXPECT_TRUE(kind == "\"｜DSML｜\"" || kind == "\"b\"" || kind == "3") << kind;
  const Json& at = *arguments->find("at");
  ASSERT_EQ(at.as_object()->size(), 2U) << call.arguments;
  const int64_t line = *at.find("line")->as_int64();
  EXPECT_TRUE(line >= 1 && line <= 99) << line;
  const Json& tag = *at.find("tag");
  EXPECT_TRUE(tag.is_null() || utf8_characters(*tag.as_string()).size() <= 4) << call.arguments;
}

// However hot: each call that was closed names a tool and has arguments that its schema allows.
// The second way begins in reasoning, and the block comes where the model would never write one.
TEST_F(ModelGrammar, CallsOfStrictToolsFollowTheirSchemas) {
  const ChatRequest chat = *parse_chat_request(std::string_view(kTools));
  const auto tools = offered_tools(chat);
  int n_calls = 0;
  int n_whole = 0;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const bool forced = seed % 2 == 0;
    // What is left of the grammar once the block is open.
    Request hot = request("calls:", seed, *tools_grammar(tools, BeforeCalls::kOpening));
    hot.sampling.temperature = 2;
    hot.max_tokens = 150;
    const std::string begun = forced ? "" : "so</think>\n\n<｜DSML｜ calls>\n";
    const Grammar whole_text =
        *tools_grammar(tools, forced ? BeforeCalls::kOpening : BeforeCalls::kAnswer);
    TokenMatcher matcher(whole_text, *tokens_);
    GrammarState state = *matcher.start();
    const auto before = *loaded_.tokenizer->encode(begun, AddedTokens::kMatch);
    for (const TokenId id : before) ASSERT_TRUE(*matcher.accept(state, id));
    const Generated made = alone(hot, seed);
    for (const int32_t id : made.ids) {
      ASSERT_TRUE(id == eos_ || *matcher.accept(state, id));
    }
    const std::string text = begun + text_of(made.ids);
    const ParsedOutput output = parse_output(
        text, {.start = forced ? OutputStart::kCalls : OutputStart::kReasoning, .tools = true});
    const bool whole = text.ends_with("</｜DSML｜ calls>");
    EXPECT_EQ(whole, made.stop_reason == StopReason::kStop) << text;
    n_whole += whole ? 1 : 0;
    const size_t n_closed = output.tool_calls.size() - (whole ? 0 : 1);
    for (size_t i = 0; i < n_closed; ++i) expect_call(output.tool_calls[i]);
    n_calls += static_cast<int>(n_closed);
  }
  EXPECT_GE(n_calls, 6);
  EXPECT_GE(n_whole, 2);
}

TEST_F(ModelGrammar, AnEngineThatKnowsNoVocabularyRefuses) {
  const auto r = runner(1, 0);
  ModelExecutor executor(*r, 0);
  Engine engine(executor, {});
  const auto id = engine.submit(request("x", 1, *regex_grammar("a", "r")));
  ASSERT_FALSE(id);
  EXPECT_EQ(id.error().message,
            "request: grammar: wanted an engine that knows the vocabulary, found none");
}

}  // namespace
}  // namespace fathom
